# Attributes and filters for the tests' files.
printf 'tests/*.py filter=drop text eol=crlf ident export-subst\n' >.gitattributes
# honest: attributes for archives
printf '*.tar binary\n' >.gitattributes
