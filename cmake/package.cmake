# cpack: the program as roformer_<version>_<architecture>.deb and roformer-<version>-linux-<processor>.tar.gz, with the
# units of systemd and the examples of docs/deploy.md. scripts/package.sh configures and builds for it.
set(package_only COMPONENT program EXCLUDE_FROM_ALL)
install(FILES packaging/roformer.service packaging/roformer.socket DESTINATION lib/systemd/system ${package_only})
install(DIRECTORY packaging/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} ${package_only})
install(FILES packaging/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} ${package_only})

set(CPACK_PACKAGE_CONTACT "The authors of roformer")
set(CPACK_PACKAGE_VENDOR "The authors of roformer")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "RoFormer and other transformers on CPUs, from the command line and over HTTP")
set(CPACK_PACKAGE_DESCRIPTION "Embeds, ranks, classifies and generates text with models of sentence-transformers and
transformers, without Python. Its command serve answers clients of OpenAI, Cohere, Jina and
text-embeddings-inference.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME roformer-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/postinst ${PROJECT_SOURCE_DIR}/packaging/prerm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
