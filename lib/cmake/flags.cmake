# How everything is compiled.

if(ADAMOD_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
        message(FATAL_ERROR "ADAMOD_FUZZ needs clang: configure with -DCMAKE_C_COMPILER=clang")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_compile_definitions(FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION=1) # checksums, which no fuzzer guesses, are not compared
    add_link_options(-fsanitize=address,undefined)
elseif(ADAMOD_SANITIZE)
    add_compile_options(-fsanitize=${ADAMOD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${ADAMOD_SANITIZE})
endif()

# The kernels are a thousand loops, and with all checks they take longer to compile than everything else. So pointers are
# not checked when they are computed: the address sanitizer checks their use. Its checks are calls instead of inline code,
# which halves the time. A fuzzer learns nothing from the formula that runs.
set(kernel_flags "")
if(ADAMOD_FUZZ OR ADAMOD_SANITIZE MATCHES "address")
    set(kernel_flags -fno-sanitize=null,pointer-overflow,object-size,alignment)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        list(APPEND kernel_flags --param=asan-instrumentation-with-call-threshold=0)
    else()
        list(APPEND kernel_flags -mllvm -asan-instrumentation-with-call-threshold=0)
    endif()
endif()
if(ADAMOD_FUZZ)
    list(APPEND kernel_flags -fno-sanitize=fuzzer-no-link)
endif()

# Results are the same bit for bit everywhere, so no product and sum may be fused into one rounding; and square roots
# need not set errno, which is what lets loops over them become vector instructions.
set(arithmetic_flags -ffp-contract=off -fno-math-errno)
set(warning_flags -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla)
set(c_warning_flags -Wstrict-prototypes -Wmissing-prototypes)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # Messages and names are cut on purpose where they do not fit; which cuts gcc sees depends on how it optimizes.
    list(APPEND warning_flags -Wno-format-truncation)
    if(ADAMOD_SANITIZE)
        list(APPEND warning_flags -Wno-maybe-uninitialized) # the sanitizers' own code makes false ones
    endif()
endif()

# Kernels of many rules and types have much in common: they shrink to a third. Drivers of CUDA 13 can read them.
set(cuda_compression "")
if(cuda AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
    set(cuda_compression -compress-mode=size)
endif()
set(cuda_fast_compile "")
if(cuda AND ADAMOD_CUDA_FAST_COMPILE AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13.0)
    set(cuda_fast_compile --Ofast-compile=max)
endif()

# Hardening: makes bugs in this code harder to exploit. Optimized builds only: _FORTIFY_SOURCE has no effect in others, and
# sanitizers find more. A packager's own level of _FORTIFY_SOURCE is kept.
include(CheckCCompilerFlag)
check_c_compiler_flag(-fcf-protection ADAMOD_HAS_CF_PROTECTION) # x86 alone
set(hardening_flags -fstack-protector-strong)
if(ADAMOD_HAS_CF_PROTECTION)
    list(APPEND hardening_flags -fcf-protection)
endif()
if(NOT "${CMAKE_C_FLAGS} $ENV{CPPFLAGS}" MATCHES "_FORTIFY_SOURCE")
    list(APPEND hardening_flags -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
macro(adamod_harden) # all targets of the folder and those below it
    if(NOT ADAMOD_SANITIZE AND NOT ADAMOD_FUZZ)
        set(optimized $<OR:$<CONFIG:>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>)
        list(JOIN hardening_flags "," for_the_host_compiler)
        add_compile_options("$<$<AND:${optimized},$<COMPILE_LANGUAGE:C>>:${hardening_flags}>"
            "$<$<AND:${optimized},$<COMPILE_LANGUAGE:CUDA>>:-Xcompiler=${for_the_host_compiler}>")
        add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
    endif()
endmacro()

function(adamod_flags target)
    set_target_properties(${target} PROPERTIES
        C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS ON C_VISIBILITY_PRESET hidden
        CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_compile_options(${target} PRIVATE -pthread ${arithmetic_flags} ${warning_flags}
        $<$<COMPILE_LANGUAGE:C>:${c_warning_flags}> $<$<BOOL:${ADAMOD_WERROR}>:-Werror>)
endfunction()

# adamod_objects(NAME SOURCE...): a part of libadamod, compiled once, position-independent, for both libraries.
function(adamod_objects name)
    add_library(${name} OBJECT ${ARGN})
    adamod_flags(${name})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${name} PRIVATE ${ADAMOD_LIB}/include ${ADAMOD_LIB})
    target_link_libraries(${name} PRIVATE Threads::Threads)
    # A part of a project that chose no build type is still compiled for speed: the kernels are some ten times as fast.
    if(NOT multi_config AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_C_FLAGS MATCHES "-O")
        target_compile_options(${name} PRIVATE -O3)
    endif()
endfunction()
