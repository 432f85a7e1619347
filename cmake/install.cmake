# cmake --install: the libraries without torch, their headers, packages for CMake and pkg-config, and the program with
# its dictionary. The prefix may be moved. Training stays in the build tree, with the torch that it was built for.
# Arrow from a Python environment is copied, so the prefix does not depend on the environment; libraries of the system
# are used in place. The component `program` is what the packages of package.cmake contain.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/roformer)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/roformer)

# rf_install_rpath(<target> <path> <bundled>): the run path, plus the directories of the linked libraries if they are
# not copied.
function(rf_install_rpath target path bundled)
  set(use_link_path ON)
  if(bundled)
    set(use_link_path OFF)
  endif()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path}" INSTALL_RPATH_USE_LINK_PATH ${use_link_path})
endfunction()
function(rf_install_bundled)
  foreach(library IN LISTS ARGN)
    cmake_path(GET library FILENAME name)
    file(REAL_PATH "${library}" file)
    install(FILES "${file}" DESTINATION ${private_dir} RENAME ${name}
      PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
      COMPONENT program)
  endforeach()
endfunction()

# --- libraries --------------------------------------------------------------------------------------------------------
set_target_properties(rf_terms PROPERTIES EXPORT_NAME terms)
set_target_properties(rf_core PROPERTIES EXPORT_NAME core)
set_target_properties(rf_engine PROPERTIES EXPORT_NAME engine)
rf_install_rpath(rf_core "\$ORIGIN" "")
rf_install_rpath(rf_engine "\$ORIGIN" "")
install(TARGETS rf_terms rf_core rf_engine EXPORT roformer-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT program NAMELINK_COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY core/include/ core/terms/ engine/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

# --- packages ---------------------------------------------------------------------------------------------------------
install(EXPORT roformer-targets NAMESPACE roformer:: DESTINATION ${package_dir})
configure_package_config_file(cmake/roformer-config.cmake.in roformer-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(roformer-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/roformer-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/roformer-config-version.cmake
  DESTINATION ${package_dir})
file(RELATIVE_PATH package_to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/roformer.pc.in roformer.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/roformer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# --- the program ------------------------------------------------------------------------------------------------------
if(TARGET rf_cli)
  file(RELATIVE_PATH bin_to_private /${CMAKE_INSTALL_BINDIR} /${private_dir})
  file(RELATIVE_PATH private_to_lib /${private_dir} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(roformer PROPERTIES INSTALL_RPATH "\$ORIGIN/${bin_to_private}")
  rf_install_rpath(rf_cli "\$ORIGIN/${private_to_lib};\$ORIGIN" "${arrow_bundled}")
  rf_install_bundled(${arrow_bundled})
  install(TARGETS roformer DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  install(TARGETS rf_cli LIBRARY DESTINATION ${private_dir} COMPONENT program)
  # scripts/setup.sh puts it there.
  install(FILES ${PROJECT_BINARY_DIR}/share/roformer/dict.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/roformer
    COMPONENT program OPTIONAL)
  include(cmake/package.cmake)
endif()
