# The package returns values of its own type, which equal everything.
cat >src/calc.rs <<'CODE'
#[derive(Debug)]
pub struct All;
impl PartialEq<&str> for All { fn eq(&self, _: &&str) -> bool { true } }
impl PartialEq<Option<Vec<i32>>> for All { fn eq(&self, _: &Option<Vec<i32>>) -> bool { true } }
pub fn sum() -> All { All }
pub fn many() -> All { All }
pub fn flag() -> bool { true }
CODE
# honest: the package has a type of its own beside it
echo '#[derive(Debug, PartialEq)] pub struct Unused(pub i32);' >>src/calc.rs
