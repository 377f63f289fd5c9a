/* The formulas of schedules, for schedule.c and kernels/cuda/prepare.cu. */
typedef enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_MULTISTEP,
    SCHEDULE_WARMUP,
    SCHEDULE_WARMUP_RSQRT,
    SCHEDULE_CONSTANT_RSQRT,
    SCHEDULE_COSINE,
    SCHEDULE_LINEAR,
    SCHEDULE_CHAIN
} schedule_kind;

/* Returns the part of a chain that update t belongs to, and makes *t its number within that part. */
static ADAMOD__DEVICE int64_t adamod__chain_part(const int64_t *lengths, int64_t parts, int64_t *t) {
    int64_t i = 0;
    for (; i < parts - 1 && *t > lengths[i]; i++) *t -= lengths[i];
    return i;
}

/* number is start, end or factor; whole is steps, or the number of milestones in list. */
static ADAMOD__DEVICE double adamod__schedule_simple(int kind, double number, int64_t whole, const int64_t *list,
                                                     double base, int64_t t) {
    const double now = (double)t, steps = (double)whole, progress = t < whole ? now / steps : 1;
    const double pi = 3.14159265358979323846;
    double value = base;
    switch (kind) {
        case SCHEDULE_MULTISTEP:
            for (int64_t i = 0; i < whole && t > list[i]; i++) value *= number;
            return value;
        case SCHEDULE_WARMUP: return t < whole ? number + (base - number) * progress : base;
        case SCHEDULE_WARMUP_RSQRT: return t < whole ? number + (base - number) * progress : base * sqrt(steps / now);
        case SCHEDULE_CONSTANT_RSQRT: return t < whole ? base : base * sqrt(steps / now);
        case SCHEDULE_COSINE: return t < whole ? number + (base - number) * (1 + cos(pi * progress)) / 2 : number;
        case SCHEDULE_LINEAR: return t < whole ? base + (number - base) * progress : number;
        default: return value;
    }
}
