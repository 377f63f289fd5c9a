/* sums_graph.h - a graph whose gradients are sums over rows, each found another way. */
#ifndef SUMS_GRAPH_H
#define SUMS_GRAPH_H

#include "nn/nn.h"

/* Gradients of three passes over it with rows rows, the second and third of which add to what the first left. to_device puts
 * the parameters on a device; NULL: they stay. NULL if it fails, and then it has printed why. */
nn_params *sums_gradient(int64_t rows, int64_t cols, adamod_status (*to_device)(nn_params *p, void *context),
                         void *context);

/* Whether each parameter's gradients differ by at most this much of their size, or of a thousandth of all gradients'. */
bool sums_agree(const nn_params *a, const nn_params *b, double tolerance);

#endif
