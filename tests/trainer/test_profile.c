/* A graph as a bench sees it: its inputs, which it keeps and feeds again.
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

TEST(products_are_those_of_linear_layers_and_convolutions) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    nn_profile_product p;
    const int images = nn_symbol(g, "images", 8);
    const nn_value w = nn_parameter(g, "w", 4, (int64_t[]){5, 3, 3, 2}, (nn_init){NN_ZEROS, 0});
    const nn_value v = nn_parameter(g, "v", 2, (int64_t[]){7, 5}, (nn_init){NN_ZEROS, 0});
    nn_value x = nn_convolution(g, nn_input_images(g, "x", NN_F32, images, 6, 6, 2), w, 2, 1);
    nn_linear(g, nn_average_pool(g, x, 3), v, -1, NN_LINEAR);
    if (CHECK(nn_profile_product_at(g, 0, &p)))
        CHECK(p.rows == images && p.capacity == 8 && p.pixels == 9 && p.in == 18 && p.out == 5);
    if (CHECK(nn_profile_product_at(g, 1, &p))) CHECK(p.pixels == 1 && p.in == 5 && p.out == 7);
    CHECK(!nn_profile_product_at(g, 2, &p));
    nn_graph_free(g);
    nn_params_free(params);
}

/* A name that begins as another does is not the other's. */
TEST(gpus_have_the_peaks_of_their_data_sheets) {
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA H200"), 989.4e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA H100 80GB HBM3"), 989.4e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA H100 PCIe"), 756e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA A100-SXM4-80GB"), 312e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA A10G"), 70e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA L40S"), 362e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("NVIDIA L4"), 121e12, 0);
    CHECK_CLOSE(nn_profile_data_sheet("a GPU of next year"), 0, 0);
}

RUN_TESTS(ENTRY(gpus_have_the_peaks_of_their_data_sheets), ENTRY(inputs_are_those_that_a_run_is_given),
          ENTRY(products_are_those_of_linear_layers_and_convolutions))
