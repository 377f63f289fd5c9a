/* The section ADAMOD_RULE_NAME of every rule's file, in the order of list.inc.h. The includer defines the words it needs:
 *   RULE(name)     a rule
 *   DRIVER(name)   it has a driver, on CUDA devices a .cu file
 *   SUMS(name)     its driver is optim/sums.c, and it has FINISH
 *   OPTION(ID)     an option that only this file has
 *   CAN_BE_CAUTIOUS(name)   it has the option cautious */
#ifndef RULE
#define RULE(name)
#endif
#ifndef DRIVER
#define DRIVER(name)
#endif
#ifndef SUMS
#define SUMS(name)
#endif
#ifndef OPTION
#define OPTION(id)
#endif
#ifndef CAN_BE_CAUTIOUS
#define CAN_BE_CAUTIOUS(name)
#endif

#define ADAMOD_RULE_NAME
#include "rules/list.inc.h"
#undef ADAMOD_RULE_NAME

#undef RULE
#undef DRIVER
#undef SUMS
#undef OPTION
#undef CAN_BE_CAUTIOUS
