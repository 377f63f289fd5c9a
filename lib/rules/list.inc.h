/* Every rule's file, in the order in which rules are listed. A new rule is its file and a line here.
 *
 * The includer says which section of the files it wants:
 *   ADAMOD_RULE_NAME          its rules, and the options that no other file has: include names.inc.h for it
 *   ADAMOD_RULE_FORMULAS      the formulas: compiled for each instruction set and type, and for CUDA
 *   ADAMOD_RULE_COEFS         the coefficients that formulas read: in C, and for CUDA
 *   ADAMOD_RULE_DESCRIPTION   states, options, what else is special about the rule: in C
 *   ADAMOD_RULE_FINISH        FINISH(name) { ... } of rules with the driver sums.c: in C, and for CUDA */
#include "rules/adamod.inc.h"
#include "rules/adam.inc.h"
#include "rules/sgd.inc.h"
#include "rules/adagrad.inc.h"
#include "rules/rmsprop.inc.h"
#include "rules/adadelta.inc.h"
#include "rules/adabound.inc.h"
#include "rules/adashift.inc.h"
#include "rules/nosadam.inc.h"
#include "rules/adafactor.inc.h"
#include "rules/radam.inc.h"
#include "rules/lion.inc.h"
#include "rules/nadam.inc.h"
#include "rules/adamax.inc.h"
#include "rules/adabelief.inc.h"
#include "rules/adopt.inc.h"
#include "rules/ademamix.inc.h"
#include "rules/adan.inc.h"
#include "rules/lamb.inc.h"
#include "rules/stableadamw.inc.h"
#include "rules/schedulefree.inc.h"
#include "rules/sophia.inc.h"
#include "rules/muon.inc.h"
#include "rules/prodigy.inc.h"
#include "rules/soap.inc.h"
#include "rules/laprop.inc.h"
