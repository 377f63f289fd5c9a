/* experiment.c - an experiment of task.h: threads, parameters, plan, optimizer. */
#include "train/task.h"

#include "core/error.h"
#include "core/pool.h"
#include "nn/profile.h"
#include "train/patterns.h"
#include "train/shard.h"

#include <string.h>

int task_metric(const task *t, const char *name) {
    for (int i = 0; i < t->n_metrics; i++) {
        if (strcmp(t->metrics[i].name, name) == 0) return i;
    }
    return -1;
}

const char *task_split_name(task_split split) {
    return split == SPLIT_TRAIN ? "train" : split == SPLIT_VALID ? "valid" : "test";
}

const char *task_split_label(task_split split) {
    return split == SPLIT_TRAIN ? "training" : split == SPLIT_VALID ? "validation" : "test";
}

int experiment_gone(experiment *e, const char *directory, task_split split) {
    if (!directory) return -1;
    snprintf(e->gone[split], sizeof e->gone[split], "%s", adamod__last_message());
    return 0;
}

/* ---- parameters and plan ---- */

adamod_status experiment_cuda_status(void) {
    const adamod_status status = adamod_cuda_status();
    return status ? status : nn_device_status("cuda");
}

bool experiment_wants_gpu(const recipe *r) {
    const recipe_backend backend = recipe_backend_of(r, NULL);
    return backend == BACKEND_CUDA || (backend == BACKEND_AUTO && experiment_cuda_status() == ADAMOD_OK);
}

/* The host has no tf32. */
static nn_precision precision_of(const recipe *r, bool on_device) {
    static const nn_precision all[] = {[PRECISION_AUTO] = NN_MIXED,
                                       [PRECISION_FULL] = NN_FULL,
                                       [PRECISION_TF32] = NN_TF32,
                                       [PRECISION_MIXED] = NN_MIXED};
    if (on_device) return all[r->train.precision];
    return r->train.precision == PRECISION_MIXED ? NN_MIXED : NN_FULL;
}

const char *experiment_precision(const experiment *e) {
    static const char *const names[] = {[NN_FULL] = "full", [NN_TF32] = "tf32", [NN_MIXED] = "mixed"};
    return names[e->params->on_device ? precision_of(&e->recipe, true) : e->params->precision];
}

const char *experiment_bf16(const experiment *e) {
    if (e->params->on_device || e->params->precision != NN_MIXED) return NULL;
    return nn_profile_narrow() ? nn_profile_narrow() : "no bf16 instructions";
}

/* The training graph is always built, as the first graph defines the parameters. loads: their values are loaded next. */
static int make_params(experiment *e, bool loads, nn_value *loss) {
    e->params = nn_params_create();
    e->graph = e->params ? nn_graph_create(e->params) : NULL;
    if (!e->graph) return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for the model");
    *loss = e->task->build(e, e->graph);
    if (loads ? nn_params_allocate_zeros(e->params) : nn_params_allocate(e->params, e->recipe.train.seed))
        return adamod__fail(ADAMOD_ERROR_MEMORY, "out of memory for %lld parameters",
                            (long long)nn_params_total(e->params));
    const bool on_gpu = experiment_wants_gpu(&e->recipe), any = recipe_backend_of(&e->recipe, NULL) == BACKEND_AUTO;
    const char *device = !any ? e->recipe.train.backend : on_gpu ? "cuda" : "cpu";
    return nn_params_to_device(e->params, device, precision_of(&e->recipe, on_gpu));
}

static int make_plan(experiment *e, nn_value loss) {
    const recipe *r = &e->recipe;
    const bool synced = comm_launched().size > 1 || r->train.comm == SUM_BY_NCCL; /* see experiment_join */
    const nn_plan_options o = {
        .backend = r->train.backend, .loss = loss, .pool = e->pool, .training = true, .synced = synced};
    return nn_plan_create(&e->plan, e->graph, &o);
}

/* ---- optimizer ---- */

/* The library treats a gradient that is not finite as train.nonfinite says, unless the recipe sets its own option. */
static adamod_status guard_gradients(const recipe *r, adamod_optimizer *opt) {
    if (recipe_find_pair(&r->optimizer.options, "nonfinite")) return ADAMOD_OK;
    return adamod_set_text(opt, "nonfinite", r->train.nonfinite == SKIP_UPDATE ? "skip" : "error");
}

static bool is_undecayed(const recipe *r, const nn_param *p) {
    static const char *const kinds[] = {[NN_WEIGHT] = "", [NN_BIAS] = "biases", [NN_NORM] = "norms"};
    return *kinds[p->kind] && key_lists(r->optimizer.no_decay, kinds[p->kind]);
}

bool experiment_trains(const experiment *e, const nn_param *p) {
    bool frozen;
    (void)recipe_group_of(&e->recipe, p->name, &frozen);
    return !frozen;
}

/* Fails if a group has no parameters, or all are frozen. */
static int check_groups(const experiment *e) {
    recipe_group groups[RECIPE_MAX_GROUPS];
    const int n = recipe_groups(&e->recipe, groups);
    int trained = 0;
    for (int i = 0; i < n; i++) {
        char key[80];
        snprintf(key, sizeof key, "optimizer.groups.%s.match", groups[i].name);
        if (patterns_check(e->params, key, groups[i].match)) return -1;
    }
    for (int i = 0; i < e->params->n; i++) trained += experiment_trains(e, &e->params->list[i]);
    return trained ? 0 : adamod__refuse("optimizer.groups: all parameters are frozen, nothing is left to train");
}

/* On the host there is no bf16 copy. Its address is never used, as no step is taken. */
static nn_param_memory memory_of(const nn_params *params, const nn_param *p, bool on_host) {
    nn_param_memory m = nn_params_memory(params, p);
    if (!on_host || !params->on_device) return m;
    m.data = params->data + p->offset;
    m.grad = m.half ? NULL : params->grad + p->offset;
    if (m.half) m.half = params->grad + p->offset;
    return m;
}

static adamod_status add_param(const experiment *e, adamod_optimizer *opt, const nn_param *p, bool on_host) {
    const nn_param_memory m = memory_of(e->params, p, on_host);
    adamod_tensor t = {.name = p->name, .param = m.half ? m.half : m.data, .grad = m.grad, .ndim = p->ndim};
    if (m.half) t.param_type = ADAMOD_BF16, t.master = m.data;
    for (int d = 0; d < p->ndim; d++) t.shape[d] = p->shape[d];
    bool frozen;
    const int group = recipe_group_of(&e->recipe, p->name, &frozen);
    if (frozen) return ADAMOD_OK;
    return adamod_add_tensor(opt, recipe_library_group(&e->recipe, group, is_undecayed(&e->recipe, p)), &t, NULL);
}

int experiment_optimizer(experiment *e, int first, int end, bool on_host, adamod_optimizer **out) {
    adamod_optimizer *opt;
    const char *device = on_host ? "cpu" : nn_params_device(e->params);
    if (recipe_optimizer(&e->recipe, device, e->epoch.batches, &opt)) return -1;
    adamod_status status = guard_gradients(&e->recipe, opt);
    if (!status) status = adamod_set_pool(opt, e->pool);
    if (!status && e->params->on_device && !on_host) status = adamod_set_stream(opt, nn_params_stream(e->params));
    for (int i = first; !status && i < end; i++) status = add_param(e, opt, &e->params->list[i], on_host);
    if (status) adamod_free(opt);
    else *out = opt;
    return status;
}

/* ---- the whole ---- */

static void find_length(experiment *e) {
    const recipe *r = &e->recipe;
    e->epoch = (epoch_length){e->task->batches(e), r->train.accumulate};
    e->steps = r->train.epochs > 0 ? epochs_to_updates(e->epoch, r->train.epochs) : r->train.steps;
}

/* Opens NCCL if the recipe asks for it; with "auto" the host may sum instead. */
static int join_devices(experiment *e, comm *c, nccl **out) {
    const recipe *r = &e->recipe;
    const bool must = r->train.comm == SUM_BY_NCCL, may = c && r->train.comm == SUM_BY_ANY;
    if (must && !e->params->on_device)
        return adamod__refuse("train.comm is nccl, which sums on GPUs, but the run is on the CPU");
    if (!e->params->on_device || (!must && !may)) return 0;
    if (r->train.accumulate < comm_size(c))
        return adamod__refuse("NCCL: %d ranks, but an update has %d batches, and each must have one; or set "
                              "train.comm to mpi",
                              comm_size(c), r->train.accumulate);
    if (!nccl_open(out, c)) return 0;
    if (!must)
        snprintf(e->slow, sizeof e->slow, "gradients are summed by the host, not by NCCL: %s", adamod__last_message());
    return must ? -1 : 0;
}

/* "auto" overlaps if there are several ranks and, on the host, a spare core, as MPI polls while it waits. */
static bool could_overlap(const experiment *e, const comm *c) {
    if (!e->params->on_device && !comm_threads(c)) return false;
    if (e->recipe.train.overlap != OVERLAP_AUTO) return e->recipe.train.overlap == OVERLAP_ON;
    return comm_size(c) > 1 && (e->params->on_device || adamod__cores() > comm_local(c).cores_shared);
}

/* All ranks or none, as the order of blocks differs. */
static bool overlaps(const experiment *e, comm *c) {
    int cannot = !could_overlap(e, c);
    comm_most(c, &cannot, 1);
    return !cannot;
}

static void add_over_ranks(void *e, double *x, int64_t n) { exchange_add(((experiment *)e)->exchange, x, n); }

/* Batch norms over all ranks, which must run them at the same time. */
static int sync_norms(experiment *e, bool on_device, bool *any) {
    *any = false;
    if ((!e->comm && !on_device) || !e->plan) return 0;
    if (nn_plan_sync(e->plan, add_over_ranks, e, !on_device, any)) return adamod__context("model.sync_norm: ");
    if (*any && e->recipe.train.accumulate % comm_size(e->comm) != 0)
        return adamod__refuse("model.sync_norm: train.accumulate is %d, expected a multiple of the %d ranks",
                              e->recipe.train.accumulate, comm_size(e->comm));
    return 0;
}

static int open_exchange(experiment *e, nccl *on_device, bool norms) {
    const recipe *r = &e->recipe;
    const exchange_options o = {.comm = e->comm,
                                .nccl = on_device,
                                .params = e->params,
                                .parts = shard_parts(e->shard),
                                .plan = e->plan,
                                .batches = r->train.accumulate,
                                .carries = experiment_carries(e),
                                .order = r->train.sum,
                                .overlap = overlaps(e, e->comm) && !norms};
    const int failed = exchange_open(&e->exchange, &o);
    if (failed) nccl_free(on_device);
    return failed;
}

int experiment_join(experiment *e, comm *c) {
    nccl *on_device = NULL;
    bool norms;
    exchange_free(e->exchange);
    shard_free(e->shard);
    e->exchange = NULL;
    e->shard = NULL;
    e->comm = c;
    *e->slow = '\0';
    if (join_devices(e, c, &on_device)) return -1;
    int failed = comm_agree(c, sync_norms(e, on_device, &norms));
    const bool shards = e->recipe.train.shard && (c || on_device);
    if (!failed && shards) failed = comm_agree(c, shard_open(&e->shard, e));
    if (!failed) return comm_agree(c, open_exchange(e, on_device, norms));
    nccl_free(on_device);
    return -1;
}

int experiment_open(experiment *e, const recipe *r, const char *directory, int uses) {
    return experiment_open_telling(e, r, directory, uses, (task_progress){0});
}

int experiment_open_telling(experiment *e, const recipe *r, const char *directory, int uses, task_progress progress) {
    nn_value loss = -1;
    *e = (experiment){.task = recipe_task(r), .progress = progress};
    int failed = recipe_copy(&e->recipe, r);
    if (!failed) failed = adamod_pool_create(&e->pool, r->train.threads);
    if (!failed) failed = e->task->open(e, directory, uses);
    e->progress = (task_progress){0};
    if (!failed && (uses & TASK_TRAIN)) find_length(e);
    if (!failed) failed = make_params(e, directory != NULL, &loss);
    if (!failed && !directory) failed = make_plan(e, loss);
    if (!failed && (uses & TASK_TRAIN)) failed = check_groups(e);
    if (!failed && (uses & TASK_TRAIN)) failed = experiment_optimizer(e, 0, e->params->n, false, &e->optimizer);
    if (!failed && (uses & TASK_TRAIN)) failed = experiment_join(e, NULL);
    if (!failed) failed = e->task->prepare(e, uses);
    if (failed) experiment_close(e);
    return failed ? -1 : 0;
}

void experiment_close(experiment *e) {
    if (e->task && e->state) e->task->close(e);
    exchange_free(e->exchange); /* before the plan, which refers to it */
    shard_free(e->shard);
    adamod_free(e->optimizer);
    nn_plan_free(e->plan);
    nn_graph_free(e->graph);
    nn_params_free(e->params);
    adamod_pool_free(e->pool);
    recipe_free(&e->recipe);
    *e = (experiment){0};
}
