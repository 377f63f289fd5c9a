/* Every rule's file, in the order in which rules are listed. A new rule is its file and a line here.
 *
 * The includer says which section of the files it wants:
 *   ADAMOD_RULE_NAME          RULE(name) for each rule of the file; OPTION(ID) for each option that no other file has
 *   ADAMOD_RULE_FORMULAS      the formulas: compiled for each instruction set and type, and for CUDA
 *   ADAMOD_RULE_COEFS         the coefficients that formulas read: in C, and for CUDA
 *   ADAMOD_RULE_DESCRIPTION   states, options, what else is special about the rule: in C
 *   ADAMOD_RULE_CUDA          CUDA_DRIVER(name) for each rule that has a driver there
 *   ADAMOD_RULE_FINISH        FINISH(name) { ... } of rules with the driver sums.c: in C, and for CUDA
 *   ADAMOD_RULE_SUMS          FINISH(name) for each of them */
#include "optim/rules/adamod.inc.h"
#include "optim/rules/adam.inc.h"
#include "optim/rules/sgd.inc.h"
#include "optim/rules/adagrad.inc.h"
#include "optim/rules/rmsprop.inc.h"
#include "optim/rules/adadelta.inc.h"
#include "optim/rules/adabound.inc.h"
#include "optim/rules/adashift.inc.h"
#include "optim/rules/nosadam.inc.h"
#include "optim/rules/adafactor.inc.h"
#include "optim/rules/radam.inc.h"
#include "optim/rules/lion.inc.h"
#include "optim/rules/nadam.inc.h"
#include "optim/rules/adamax.inc.h"
#include "optim/rules/adabelief.inc.h"
#include "optim/rules/adopt.inc.h"
#include "optim/rules/ademamix.inc.h"
#include "optim/rules/adan.inc.h"
#include "optim/rules/lamb.inc.h"
#include "optim/rules/stableadamw.inc.h"
#include "optim/rules/schedulefree.inc.h"
#include "optim/rules/sophia.inc.h"
#include "optim/rules/muon.inc.h"
#include "optim/rules/prodigy.inc.h"
#include "optim/rules/soap.inc.h"
