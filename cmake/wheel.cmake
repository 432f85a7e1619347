# The contents of a wheel, in the component `python`: the package (pyproject.toml adds its Python files), with
#   roformer_cpp/_engine.*.so        the module
#   roformer_cpp/lib/                the libraries, and those of others that are on no list of every Linux system
#   roformer_cpp/bin/roformer        the program; the script `roformer` runs it
#   roformer_cpp/share/roformer/     the dictionary
# Files are found by paths relative to each other, so the package may lie anywhere.
set(package roformer_cpp)
set(libraries rf_core rf_engine rf_cli)
set(torch_libraries)
if(ROFORMER_TORCH)
  set(torch_libraries rf_ops rf_nn rf_training)
endif()
if(NOT TARGET rf_python)
  message(FATAL_ERROR "A wheel needs the module _engine: nanobind, and the headers of Python")
endif()

# Wheels cannot contain symbolic links, so a library has one name.
foreach(property VERSION SOVERSION)
  set_property(TARGET rf_core PROPERTY ${property})
  set_property(TARGET rf_engine PROPERTY ${property})
endforeach()
set_target_properties(rf_python PROPERTIES INSTALL_RPATH "\$ORIGIN/lib")
set_target_properties(roformer PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib")
set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "\$ORIGIN")
if(torch_libraries)
  # Python loads torch before these libraries; the program finds it next to the package, or by the environment that
  # python/roformer_cpp/_library.py sets.
  set_target_properties(${torch_libraries} PROPERTIES INSTALL_RPATH "\$ORIGIN;\$ORIGIN/../../torch/lib")
endif()
# Targets that pip builds.
add_custom_target(rf_wheel)
add_dependencies(rf_wheel roformer rf_python ${torch_libraries})
install(TARGETS rf_python LIBRARY DESTINATION ${package} COMPONENT python)
install(TARGETS ${libraries} ${torch_libraries} LIBRARY DESTINATION ${package}/lib COMPONENT python)
install(TARGETS roformer RUNTIME DESTINATION ${package}/bin COMPONENT python)

# --- libraries of others ----------------------------------------------------------------------------------------------
# Under the names by which they are asked for. GNU OpenMP keeps its name too, so that a process with torch has one: the
# loader takes the library of this name that is there first (docs/decisions/0007-one-shared-openmp.md).
set(files $<TARGET_FILE:rf_python> $<TARGET_FILE:rf_core> $<TARGET_FILE:rf_engine> $<TARGET_FILE:rf_cli>)
install(CODE "set(package_libraries \"${files}\")" COMPONENT python)
install(CODE "set(destination \"${package}/lib\")" COMPONENT python)
install(SCRIPT cmake/wheel_libraries.cmake COMPONENT python)

# --- dictionary -------------------------------------------------------------------------------------------------------
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u; s = u.find_spec('jieba'); print(s.submodule_search_locations[0] if s else '')"
  OUTPUT_VARIABLE jieba OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(jieba)
  install(FILES ${jieba}/dict.txt DESTINATION ${package}/share/roformer COMPONENT python)
else()
  message(STATUS "No jieba (pip) in ${Python_EXECUTABLE}: the wheel has no dictionary, which tokenizers that segment Chinese need")
endif()

# --- what is missing --------------------------------------------------------------------------------------------------
# Said last, where pip -v shows it.
if(NOT ROFORMER_TORCH)
  install(CODE "message(WARNING \"This wheel has no PyTorch operators, models and training: build it where Python has torch, with --no-build-isolation (docs/python.md)\")" COMPONENT python)
endif()
