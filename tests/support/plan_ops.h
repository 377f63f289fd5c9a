/* plan_ops.h - ops that the library does not have, for tests of what plans carry. */
#ifndef PLAN_OPS_H
#define PLAN_OPS_H

#include "nn/op.h"

/* y0 = w x and y1 = w x^2, of x [rows, n] and w [n], for each column; output 2, a constant: the mean of each column of x,
 * in full. Outputs 0 and 1 may have a gradient each. */
extern const nn_op plan_op_two_ways;
/* x less a mean for each column: of this batch's rows in training, which is then taken into the running mean, a state;
 * else the running mean. Outputs: that, and the running mean, in place. */
extern const nn_op plan_op_center;
/* y = x, with the same x once more and a w that are read in full: for what kernels are given. Forward only. */
extern const nn_op plan_op_probe;

/* Another output of the node whose output 0 is v; -1: there is none. */
nn_value plan_output_of(const nn_graph *g, nn_value v, int output);
nn_value plan_two_ways(nn_graph *g, nn_value x, nn_value w);
nn_value plan_center(nn_graph *g, nn_value x, nn_value running);
nn_value plan_probe(nn_graph *g, nn_value x, nn_value again, nn_value w);

#endif
