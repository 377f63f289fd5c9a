# Installs the library, and the files by which other projects find it.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/adamod)
install(TARGETS adamod_shared adamod_static EXPORT adamodTargets)
install(EXPORT adamodTargets NAMESPACE adamod:: DESTINATION ${package_dir})
if(cuda)
    install(TARGETS adamod_cuda LIBRARY NAMELINK_SKIP)
endif()
install(FILES include/adamod.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

configure_package_config_file(cmake/adamodConfig.cmake.in adamodConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(adamodConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/adamodConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/adamodConfigVersion.cmake
    DESTINATION ${package_dir})

# The installed tree can be moved: adamod.pc finds the prefix from where it lies itself.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
    set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
    file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    string(REGEX REPLACE "/$" "" pc_prefix "\${pcfiledir}/${pc_prefix}")
    set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/adamod.pc.in adamod.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/adamod.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/../LICENSE)
    install(FILES ../LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()

install(CODE "set(adamod_libdir \"${CMAKE_INSTALL_LIBDIR}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/replaced.cmake)

get_filename_component(project ${ADAMOD_LIB}/.. ABSOLUTE)
if(CMAKE_SOURCE_DIR STREQUAL ADAMOD_LIB OR CMAKE_SOURCE_DIR STREQUAL project) # not within the tree of another project
    add_custom_target(uninstall VERBATIM COMMENT "Removing what was installed" COMMAND ${CMAKE_COMMAND}
        -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt -P ${CMAKE_CURRENT_LIST_DIR}/uninstall.cmake)
endif()
