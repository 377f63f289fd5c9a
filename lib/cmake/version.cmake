# The version lives in the public header and nowhere else.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../include/adamod.h version_lines
    REGEX "^#define ADAMOD_VERSION_(MAJOR|MINOR|PATCH) [0-9]+$")
string(REGEX MATCHALL "[0-9]+" version_numbers "${version_lines}")
list(LENGTH version_numbers version_count)
if(NOT version_count EQUAL 3)
    message(FATAL_ERROR "lib/include/adamod.h must define ADAMOD_VERSION_MAJOR, _MINOR and _PATCH, one number each")
endif()
list(JOIN version_numbers "." version)
