#if !defined(__clang__) && defined(__GNUC__)
#pragma GCC pop_options
#endif
