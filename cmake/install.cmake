# cmake --install: the libraries that need no torch, their headers, packages for CMake and pkg-config, and the program
# with its dictionary. The prefix may be moved. What trains stays in the build tree, beside the torch that it was built
# for. Libraries of others (oneDNN, Arrow) are used where they were found.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/roformer)
set(private_dir ${CMAKE_INSTALL_LIBDIR}/roformer)

# INSTALL_RPATH_USE_LINK_PATH leaves out what is inside the project, as the .venv that scripts/setup.sh makes is.
function(rf_install_rpath target own_path)
  set(path "${own_path}")
  foreach(dir IN LISTS ARGN)
    cmake_path(IS_PREFIX PROJECT_SOURCE_DIR "${dir}" inside_project)
    if(inside_project)
      list(APPEND path "${dir}")
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "${path}" INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

# --- libraries --------------------------------------------------------------------------------------------------------
set_target_properties(rf_terms PROPERTIES EXPORT_NAME terms)
set_target_properties(rf_core PROPERTIES EXPORT_NAME core)
set_target_properties(rf_engine PROPERTIES EXPORT_NAME engine)
rf_install_rpath(rf_core "\$ORIGIN" ${onednn_library_dir})
rf_install_rpath(rf_engine "\$ORIGIN")
install(TARGETS rf_terms rf_core rf_engine EXPORT roformer-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY core/include/ core/terms/ engine/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

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
  rf_install_rpath(rf_cli "\$ORIGIN/${private_to_lib}" ${pyarrow_root})
  install(TARGETS roformer DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS rf_cli LIBRARY DESTINATION ${private_dir})
  # scripts/setup.sh puts it there.
  install(FILES ${PROJECT_BINARY_DIR}/share/roformer/dict.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/roformer OPTIONAL)
endif()
