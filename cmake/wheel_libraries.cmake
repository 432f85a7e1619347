# Run by the installation of a wheel: copies the shared libraries that `package_libraries` need to `destination`, except
# those that every Linux with glibc has (the lists of PEP 600) and those of torch.
file(GET_RUNTIME_DEPENDENCIES
  LIBRARIES ${package_libraries}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  CONFLICTING_DEPENDENCIES_PREFIX several
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|pthread|rt|gcc_s|stdc[+][+])[.]so" "^libroformer_" "^lib(torch|c10)")
if(missing)
  message(FATAL_ERROR "Libraries that the wheel needs were not found: ${missing}")
endif()
# A build with torch finds GNU OpenMP twice, once in torch; the wheel, which also runs without torch, takes the
# system's.
foreach(name IN LISTS several_FILENAMES)
  set(places ${several_${name}})
  list(FILTER places EXCLUDE REGEX "/torch/lib/")
  list(LENGTH places number)
  if(NOT number EQUAL 1)
    message(FATAL_ERROR "One library ${name} must be found besides that of torch, got ${several_${name}}")
  endif()
  list(APPEND found ${places})
endforeach()
foreach(library IN LISTS found)
  get_filename_component(name "${library}" NAME)
  file(REAL_PATH "${library}" file)
  message(STATUS "Installing: ${name} from ${file}")
  file(MAKE_DIRECTORY "${CMAKE_INSTALL_PREFIX}/${destination}")
  file(COPY_FILE "${file}" "${CMAKE_INSTALL_PREFIX}/${destination}/${name}")
endforeach()
