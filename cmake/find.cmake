# Finds C libraries that link.
# SPDX-License-Identifier: MIT
include(CheckFunctionExists)

function(adamod_links library symbol result) # whether a program that calls it links; asked anew every time
    set(CMAKE_REQUIRED_LIBRARIES ${library})
    set(CMAKE_REQUIRED_QUIET ON)
    unset(${result} CACHE)
    check_function_exists(${symbol} ${result})
endfunction()

# adamod_find(PREFIX HEADER SYMBOL NAME...): the first library of these names that is there and has the symbol. A header
# alone does not count: packages leave one without a library. PREFIX_LIBRARY may be given; empty, it stays away.
function(adamod_find prefix header symbol)
    set(${prefix}_WORKS OFF PARENT_SCOPE)
    find_path(${prefix}_INCLUDE_DIR ${header})
    foreach(name IN LISTS ARGN)
        find_library(${prefix}_LIBRARY ${name})
        if(NOT ${prefix}_INCLUDE_DIR OR "${${prefix}_LIBRARY}" STREQUAL "")
            return()
        endif()
        if(${prefix}_LIBRARY)
            adamod_links(${${prefix}_LIBRARY} ${symbol} ${prefix}_LINKS)
            if(${prefix}_LINKS)
                set(${prefix}_WORKS ON PARENT_SCOPE)
                return()
            endif()
            message(STATUS "${${prefix}_LIBRARY}: no ${symbol}, so it is not used")
            unset(${prefix}_LIBRARY CACHE)
        endif()
    endforeach()
endfunction()
