/* a * b + c stays two operations: a fused one would round differently where the processor has it. Also said on the
 * command line of this project's own build; here it is said for the single-file library. */
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off", "no-math-errno")
#endif
