# Options that leave tests out.
sed -i "s/^addopts = .*/addopts =\n\t--deselect=tests\/test_subclass.py/" setup.cfg
# honest: an option that changes nothing
sed -i "s/^addopts = .*/addopts =\n\t--strict-markers/" setup.cfg
