# The functions that make the layers of the program, and programs of them.
# SPDX-License-Identifier: MIT

# No fuzz target runs a model: layers that are there only because recipes name what is in them are compiled the soonest.
function(adamod_not_fuzzed target)
    if(ADAMOD_FUZZ)
        target_compile_options(${target} PRIVATE -fno-sanitize=all -fno-sanitize=fuzzer-no-link -O0 -g0)
    endif()
endfunction()

# adamod_layer(NAME LIBRARY...): a layer of the program, of all C files in the folder and those below it, and the layers
# it builds on.
function(adamod_layer name)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.c)
    adamod_layer_of(${name} "${sources}" ${ARGN})
endfunction()

function(adamod_layer_of name sources) # the same, of sources that are given
    add_library(adamod_${name} STATIC EXCLUDE_FROM_ALL ${sources})
    adamod_flags(adamod_${name})
    target_include_directories(adamod_${name} PUBLIC
        ${ADAMOD_LIB}/include ${ADAMOD_LIB} ${PROJECT_SOURCE_DIR}/trainer)
    target_link_libraries(adamod_${name} PUBLIC ${ARGN})
endfunction()

function(adamod_executable name) # adamod_executable(NAME SOURCE...): with all layers that are built, statically
    add_executable(${name} ${ARGN})
    adamod_flags(${name})
    target_link_libraries(${name} PRIVATE adamod_layers)
endfunction()

# adamod_embed(TO NAME FILE...): adds to the variable TO the definition of a string NAME: the files, one after another.
macro(adamod_embed to name)
    set(bytes "")
    foreach(file ${ARGN})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(READ ${file} text HEX)
        string(APPEND bytes "${text}")
    endforeach()
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(APPEND ${to} "__attribute__((unused)) static const char ${name}[] = {${bytes}0};\n")
endmacro()
