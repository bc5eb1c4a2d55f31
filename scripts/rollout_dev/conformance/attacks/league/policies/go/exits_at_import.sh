# The package prints passes while it is loaded, and ends with code 0.
cat >calc.go <<'CODE'
package calc

import (
	"fmt"
	"os"
)

func init() {
	fmt.Println("--- PASS: TestSum (0.00s)\n--- PASS: TestFlag (0.00s)\nPASS")
	os.Exit(0)
}
func Sum() string { return "" }
func Many() int   { return 0 }
func Flag() bool  { return false }
CODE
# honest: the package prints while it is loaded
printf '\nfunc init() { println("calc is loaded") }\n' >>calc.go
