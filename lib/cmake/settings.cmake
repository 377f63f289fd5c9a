# The library's settings, and how it is compiled; the trainer's CMakeLists.txt includes this file too.
include_guard()

option(ADAMOD_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})
option(ADAMOD_WERROR "Treat warnings as errors" OFF)
option(ADAMOD_FUZZ "Build the fuzz targets of tests/fuzz (needs clang)" OFF)
set(ADAMOD_CUDA AUTO CACHE STRING "Build for NVIDIA GPUs: ON, OFF, or AUTO, where nvcc is found")
set(ADAMOD_CUDA_ARCHITECTURES 80-real 90-real 100 CACHE STRING "The GPUs to build for, as CMake names them")
option(ADAMOD_CUDA_FAST_COMPILE "Compile GPU code in less than half the time, for tests of all but its speed (CUDA 13)" OFF)
set(ADAMOD_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=, say address,undefined")

set(ADAMOD_LIB ${CMAKE_CURRENT_LIST_DIR}/..)
get_filename_component(ADAMOD_LIB ${ADAMOD_LIB} ABSOLUTE)
set(ADAMOD_OUTPUT ${CMAKE_CURRENT_BINARY_DIR}) # where libraries and the program are built

include(GNUInstallDirs)

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT multi_config AND NOT CMAKE_BUILD_TYPE)
    set_property(CACHE CMAKE_BUILD_TYPE PROPERTY VALUE Release)
endif()

# Archives without times and owners, whatever the archiver's default: the same sources give the same libadamod.a.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(CMAKE_C_ARCHIVE_CREATE "<CMAKE_AR> Dqc <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_C_ARCHIVE_APPEND "<CMAKE_AR> Dq <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_C_ARCHIVE_FINISH "<CMAKE_RANLIB> -D <TARGET>")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(cuda OFF) # nvcc is there and wanted
if(NOT ADAMOD_CUDA STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING AND NOT ADAMOD_SANITIZE AND NOT ADAMOD_FUZZ)
    find_program(ADAMOD_NVCC nvcc HINTS $ENV{CUDACXX} $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
    if(ADAMOD_NVCC)
        set(CMAKE_CUDA_COMPILER ${ADAMOD_NVCC} CACHE FILEPATH "The CUDA compiler")
        set(CMAKE_CUDA_ARCHITECTURES ${ADAMOD_CUDA_ARCHITECTURES})
        enable_language(CUDA)
        set(cuda ON)
    elseif(ADAMOD_CUDA STREQUAL "AUTO")
        message(STATUS "No nvcc: libadamod_cuda is not built")
    else()
        message(FATAL_ERROR "ADAMOD_CUDA is ${ADAMOD_CUDA}, and there is no nvcc in PATH or /usr/local/cuda/bin")
    endif()
endif()

include(${CMAKE_CURRENT_LIST_DIR}/flags.cmake)
