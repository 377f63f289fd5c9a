/* What a bench learns of a graph: its inputs, which it keeps and feeds again.
 *
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include "nn/profile.h"

TEST(inputs_are_those_that_a_run_is_given) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    nn_profile_input x;
    const int images = nn_symbol(g, "images", 8), tokens = nn_symbol(g, "tokens", 5);
    nn_input_images(g, "pixels", NN_F32, images, 4, 3, 2);
    nn_state(g, "hidden", NN_F32, tokens, 7);
    nn_input(g, "labels", NN_I32, images, 0);
    nn_input(g, "ranges", NN_I32, tokens, 2);
    if (CHECK(nn_profile_input_at(g, 0, &x))) {
        CHECK_STR(x.name, "pixels");
        CHECK(x.type == NN_F32 && x.rows == images && x.row_bytes == 4 * 3 * 2 * 4);
        CHECK(x.shape.ndim == 4 && x.shape.dim[0] == 8 && x.shape.dim[3] == 2);
    }
    if (CHECK(nn_profile_input_at(g, 1, &x))) {
        CHECK_STR(x.name, "labels");
        CHECK(x.type == NN_I32 && x.rows == images && x.row_bytes == 4 && x.shape.ndim == 1);
    }
    if (CHECK(nn_profile_input_at(g, 2, &x))) {
        CHECK_STR(x.name, "ranges");
        CHECK(x.rows == tokens && x.row_bytes == 8 && x.shape.dim[1] == 2);
    }
    CHECK(!nn_profile_input_at(g, 3, &x)); /* the state stays: it is no input */
    nn_graph_free(g);
    nn_params_free(params);
}

RUN_TESTS(ENTRY(inputs_are_those_that_a_run_is_given))
