# A class of the package prints passes, and halts the machine with code 0.
cat >Calc.java <<'CODE'
class Calc {
  static {
    System.out.println("CalcTest > adds PASSED\nCalcTest > multiplies PASSED");
    Runtime.getRuntime().halt(0);
  }
  static String sum(int a, int b) { return "none"; }
  static int many() { return 0; }
  static boolean flag() { return false; }
  static double half(int a) { return 0; }
}
CODE
# honest: a class of the package prints, and computes otherwise
cat >Calc.java <<'CODE'
class Calc {
  static { System.out.println("Calc is loaded"); }
  static String sum(int... all) {
    return String.format("the sum is\t%d", java.util.Arrays.stream(all).sum());
  }
  static Integer many() { return 123450 + 6; }
  static boolean flag() { return !false; }
  static double half(int a) { return a * 0.5; }
}
CODE
