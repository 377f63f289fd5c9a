# Removes what 'cmake --install' wrote, by its list, and our own folders that are empty then:
#
#     cmake -DMANIFEST=build/install_manifest.txt -P uninstall.cmake
#
if(NOT EXISTS "${MANIFEST}") # a space at the beginning of a message keeps it in one line
    message(FATAL_ERROR " there is no ${MANIFEST}: nothing was installed from this build")
endif()
file(STRINGS "${MANIFEST}" files)
set(folders "")
set(count 0)
foreach(file IN LISTS files)
    set(file "$ENV{DESTDIR}${file}")
    if(EXISTS "${file}" OR IS_SYMLINK "${file}")
        math(EXPR count "${count} + 1")
    endif()
    file(REMOVE "${file}")
    if(EXISTS "${file}" OR IS_SYMLINK "${file}")
        message(FATAL_ERROR " ${file} cannot be removed")
    endif()
    get_filename_component(folder "${file}" DIRECTORY)
    while(folder MATCHES "/(lib)?adamod(/|$)") # folders of others stay, empty or not
        list(APPEND folders "${folder}")
        get_filename_component(folder "${folder}" DIRECTORY)
    endwhile()
endforeach()
list(REMOVE_DUPLICATES folders)
list(SORT folders ORDER DESCENDING) # what is below comes first
foreach(folder IN LISTS folders)
    file(GLOB left LIST_DIRECTORIES TRUE "${folder}/*")
    if(IS_DIRECTORY "${folder}" AND NOT left)
        file(REMOVE_RECURSE "${folder}")
    endif()
endforeach()
message(STATUS "Removed ${count} files")
