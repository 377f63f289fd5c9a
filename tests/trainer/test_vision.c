/* ResNet and DenseNet as a whole: their sizes, the same numbers from every backend and any number of threads, and settings
 * that do not fit. tests/trainer/test_torch_vision.py compares them with PyTorch. */
#include "check.h"
#include "small_vision.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>

/* ---- sizes ---- */

static int64_t count(const resnet_settings *r, const densenet_settings *d, int64_t side, int classes) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    const nn_value x = nn_input_images(g, "images", NN_F32, nn_symbol(g, "images", 2), side, side, 3);
    const nn_value logits = r ? resnet_build(g, r, x, classes) : densenet_build(g, d, x, classes);
    const nn_shape shape = nn_shape_of(g, logits);
    const int64_t n = shape.ndim == 2 && shape.dim[1] == classes ? nn_params_total(params) : -1;
    nn_graph_free(g);
    nn_params_free(params);
    return n;
}

static resnet_settings whole_resnet(void) {
    resnet_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&resnet_keys, &s);
    return s;
}

static densenet_settings whole_densenet(void) {
    densenet_settings s;
    memset(&s, 0, sizeof s);
    key_defaults(&densenet_keys, &s);
    return s;
}

TEST(sizes_are_the_papers) {
    const resnet_settings resnet = whole_resnet();
    const densenet_settings densenet = whole_densenet();
    CHECK_INT(count(&resnet, NULL, 32, 10), 21282122);
    CHECK_INT(count(&resnet, NULL, 32, 100), 21328292);
    CHECK_INT(count(NULL, &densenet, 32, 10), 6956298);
    CHECK_INT(count(NULL, &densenet, 32, 100), 7048548);
    CHECK_INT(count(&resnet, NULL, 64, 10), 21282122);
    CHECK_INT(count(&resnet, NULL, 30, 10), 21282122); /* strides leave 15, 8, 4 */
}

/* The weights of batch norms, 17,024 and twice that with shifts, become a scale and 4 shifts for each block, and one more
 * before and after all. */
TEST(fixup_has_numbers_in_place_of_norms) {
    resnet_settings resnet = whole_resnet();
    resnet.model.norm = RESNET_FIXUP;
    CHECK_INT(count(&resnet, NULL, 32, 10), 21282122 - 2 * 8512 + 16 * 5 + 2);
}

/* ---- settings ---- */

TEST(lists_that_do_not_fit_are_told) {
    resnet_settings r = whole_resnet();
    CHECK(!resnet_check(&r));
    static const char *const wrong[] = {
        "", "3,", ",3", "3,,4", "3 4", "0,1", "-1", "1,2,3,4,5,6,7,8,9", "257", "1,99999999999999999999", "a"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        strcpy(r.model.blocks, wrong[i]);
        CHECK_STR(resnet_check(&r), "model.blocks");
        CHECK_HAS(adamod__last_message(), "expected 1 to 8 whole numbers from 1 to 256 with commas between them");
    }
    strcpy(r.model.blocks, "2,2");
    CHECK_STR(resnet_check(&r), "model.widths");
    CHECK_STR(adamod__last_message(), "model.widths has 4 numbers, expected 2, as many as model.blocks has");
    densenet_settings d = whole_densenet();
    CHECK(!densenet_check(&d));
    d.model.compression = 0;
    CHECK_STR(densenet_check(&d), "model.compression");
    strcpy(d.model.blocks, "x");
    CHECK_STR(densenet_check(&d), "model.blocks");
}

TEST(sizes_that_pooling_does_not_divide_are_told) {
    nn_params *params = nn_params_create();
    nn_graph *g = nn_graph_create(params);
    const densenet_settings d = whole_densenet();
    const nn_value x = nn_input_images(g, "images", NN_F32, nn_symbol(g, "images", 2), 36, 36, 3);
    CHECK_INT(densenet_build(g, &d, x, 10), -1);
    nn_params_allocate(params, 1);
    nn_plan *plan = NULL;
    CHECK(nn_plan_create(&plan, g, &(nn_plan_options){.loss = -1}) != ADAMOD_OK);
    CHECK_HAS(adamod_last_error(), "transitions.2.average_pool: windows of 2 x 2 do not divide images of 9 x 9");
    nn_graph_free(g);
    nn_params_free(params);
}

/* ---- numbers ---- */

static double difference(const float *a, const float *b, int64_t n) {
    double squares = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        squares += pow((double)a[i] - b[i], 2);
        all += pow(b[i], 2);
    }
    return sqrt(squares / all);
}

static void compare(const resnet_settings *r, const densenet_settings *d) {
    small_vision ref = small_vision_make(r, d, SMALL_SIDE, "ref", 1),
                 one = small_vision_make(r, d, SMALL_SIDE, "cpu", 1);
    const float loss = small_vision_loss(&ref), same = small_vision_loss(&one);
    CHECK_CLOSE(same, loss, 1e-5 * fabs(loss));
    CHECK(difference(one.params->grad, ref.params->grad, ref.params->count) < 1e-5);
    if (ref.params->n_states)
        CHECK(difference(one.params->state_data, ref.params->state_data, ref.params->state_count) < 1e-6);
    for (int threads = 2; threads <= 3; threads++) {
        small_vision more = small_vision_make(r, d, SMALL_SIDE, "cpu", threads);
        CHECK(small_vision_loss(&more) == same);
        CHECK(memcmp(more.params->grad, one.params->grad, (size_t)one.params->count * sizeof(float)) == 0);
        if (one.params->n_states)
            CHECK(memcmp(more.params->state_data, one.params->state_data,
                         (size_t)one.params->state_count * sizeof(float)) == 0);
        small_vision_free(&more);
    }
    small_vision_free(&ref);
    small_vision_free(&one);
}

TEST(resnets_are_the_same_everywhere) {
    const resnet_settings batch = small_resnet(RESNET_BATCH_NORM), fixup = small_resnet(RESNET_FIXUP);
    compare(&batch, NULL);
    compare(&fixup, NULL);
}

TEST(densenets_are_the_same_everywhere) {
    const densenet_settings d = small_densenet();
    compare(NULL, &d);
}

/* ---- for PyTorch ---- */

static void dump(const char *folder, const char *name, const resnet_settings *r, const densenet_settings *d,
                 int64_t side) {
    const char *device = getenv("VISION_DEVICE"), *backend = getenv("VISION_BACKEND"),
               *how = getenv("VISION_PRECISION");
    const nn_precision precision = !how || !strcmp(how, "full") ? NN_FULL : strcmp(how, "tf32") ? NN_MIXED : NN_TF32;
    char path[512];
    snprintf(path, sizeof path, "%s/%s.safetensors", folder, name);
    small_vision s = device ? small_vision_make_on(r, d, side, device, precision)
                            : small_vision_make(r, d, side, backend ? backend : "cpu", 2);
    small_vision_dump(&s, r ? &resnet_keys : &densenet_keys, r ? (const void *)r : d, path);
    small_vision_free(&s);
}

TEST(files_for_pytorch) {
    const char *folder = getenv("VISION_FOLDER");
    if (!folder) SKIP("test_torch_vision.py asks for them");
    const resnet_settings batch = small_resnet(RESNET_BATCH_NORM), fixup = small_resnet(RESNET_FIXUP);
    const densenet_settings dense = small_densenet();
    dump(folder, "resnet", &batch, NULL, SMALL_SIDE);
    dump(folder, "resnet-odd", &batch, NULL, 7);
    dump(folder, "fixup", &fixup, NULL, SMALL_SIDE);
    dump(folder, "densenet", NULL, &dense, SMALL_SIDE);
    if (!getenv("VISION_WHOLE")) return;
    const resnet_settings resnet = whole_resnet();
    const densenet_settings densenet = whole_densenet();
    dump(folder, "resnet34", &resnet, NULL, 32);
    dump(folder, "densenet121", NULL, &densenet, 32);
}

RUN_TESTS(ENTRY(sizes_are_the_papers), ENTRY(fixup_has_numbers_in_place_of_norms),
          ENTRY(lists_that_do_not_fit_are_told), ENTRY(sizes_that_pooling_does_not_divide_are_told),
          ENTRY(resnets_are_the_same_everywhere), ENTRY(densenets_are_the_same_everywhere), ENTRY(files_for_pytorch))
