"""Logs of test runners, shortened, with the statuses that they report.

Those of Go, Cargo, CTest, unittest, tox, Jest, Mocha, Vitest, Node and Maven come from real runs;
the others are written after the documented forms and the ids in the official lists.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snippet:
    """A log, and the status of each test in it."""

    parser: str
    log: str
    statuses: dict[str, str]


def snippet(parser: str, log: str, **tests: list[str]) -> Snippet:
    """Return a log with the names of its tests by status."""
    return Snippet(
        parser, log, {name: word.upper() for word, names in tests.items() for name in names}
    )


GO = """\
=== RUN   TestAdd
=== RUN   TestAdd/small_numbers
    calc_test.go:3: want -1
--- FAIL: TestAdd (0.00s)
    --- PASS: TestAdd/small_numbers (0.00s)
    --- FAIL: TestAdd/negative (0.00s)
--- SKIP: TestSkipped (0.00s)
noise
--- PASS: TestPrints (0.00s)
FAIL
FAIL\texample.com/calc\t0.001s
"""
GO_JSON = """\
{"Action":"start","Package":"example.com/calc"}
{"Action":"run","Package":"example.com/calc","Test":"TestAdd"}
{"Action":"output","Package":"example.com/calc","Test":"TestAdd","Output":"--- PASS: TestB (0s)\\n"}
{"Action":"pass","Package":"example.com/calc","Test":"TestAdd/small_numbers","Elapsed":0}
{"Action":"fail","Package":"example.com/calc","Test":"TestAdd","Elapsed":0}
{"Action":"skip","Package":"example.com/calc","Test":"TestSkipped","Elapsed":0}
{"Action":"fail","Package":"example.com/calc","Elapsed":0.001}
"""
CARGO = """\
     Running unittests src/lib.rs (target/debug/deps/calc-c6626fb655a8d231)

running 5 tests
test tests::adds ... ok
test tests::panics - should panic ... ok
test tests::fails ... FAILED
test tests::slow ... ignored
test tests::slower ... ignored, needs a network

test result: FAILED. 2 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out
   Doc-tests calc
test src/lib.rs - add (line 2) ... ok
"""
CTEST = """\
    Start 1: adds
1/7 Test #1: adds .............................   Passed    0.00 sec
2/7 Test #2: with spaces ......................   Passed    0.00 sec
3/7 Test #3: fails ............................***Failed    0.00 sec
4/7 Test #4: hangs ............................***Timeout   1.00 sec
5/7 Test #5: skips ............................***Skipped   0.00 sec
Unable to find executable: /nonexistent/program
6/7 Test #6: missing ..........................***Not Run   0.00 sec
7/7 Test #7: crashes ..........................***Exception: SegFault  0.00 sec
    Test #3: fails ............................   Passed    0.00 sec

43% tests passed, 4 tests failed out of 7
\t  3 - fails (Failed)
"""
UNITTEST = """\
setUpClass (test_calc.Broken) ... ERROR
test_adds (test_calc.Calc.test_adds) ... ok
test_old (test_calc.Calc) ... ok
test_documented (test_calc.Calc.test_documented)
Adds two numbers. ... ok
test_errors (test_calc.Calc.test_errors) ... ERROR
test_expected (test_calc.Calc.test_expected) ... expected failure
test_prints (test_calc.Calc.test_prints) ... noise
ok
test_skipped (test_calc.Calc.test_skipped) ... skipped 'not here'
test_sub (test_calc.Calc.test_sub) ...\x20
  test_sub (test_calc.Calc.test_sub) (i=1) ... FAIL
test_unexpected (test_calc.Calc.test_unexpected) ... unexpected success

======================================================================
FAIL: test_fails (test_calc.Calc.test_fails)
"""
TOX = """\
py: commands[0]> pytest -rA --color=yes test_tox.py
\x1b[1m============================= test session starts ==============================\x1b[0m
test_tox.py \x1b[32m.\x1b[0m\x1b[31mF\x1b[0m\x1b[32m.\x1b[0m                            [100%]
\x1b[36m\x1b[1m=========================== short test summary info ==============\x1b[0m
\x1b[32mPASSED\x1b[0m test_tox.py::\x1b[1mtest_a\x1b[0m
\x1b[32mPASSED\x1b[0m test_tox.py::\x1b[1mtest_c[a b]\x1b[0m
\x1b[33mSKIPPED\x1b[0m [1] test_tox.py:6: no
\x1b[33mXFAIL\x1b[0m test_tox.py::\x1b[1mtest_e\x1b[0m
\x1b[31mFAILED\x1b[0m test_tox.py::\x1b[1mtest_b\x1b[0m - assert 1 == 2
py: exit 1 (0.69 seconds) /testbed> pytest -rA --color=yes test_tox.py pid=9247
"""
R2E = """\
r2e_tests/test_1.py .F..                                                [100%]
PASSED before the summary::x
=========================== short test summary info ============================
\x1b[32mPASSED\x1b[0m r2e_tests/test_1.py::TestK::test_a
PASSED r2e_tests/test_1.py::test_b[x - y]
FAILED r2e_tests/test_1.py::test_PASSED_c - AssertionError: x
ERROR r2e_tests/test_2.py
SKIPPED [1] r2e_tests/test_1.py:3: no
==================== 1 failed, 2 passed, 1 error in 0.57s ====================
"""
JUNIT = """\
noise < > & <testsuite
<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest">
<testcase classname="test_tox" name="test_a" time="0.000" />
<testcase classname="test_tox" name="test_b"><failure message="assert 1 == 2">&gt; def</failure>
</testcase><testcase classname="test_tox.TestK" name="test_c[a b]" />
<testcase classname="test_tox" name="test_d"><skipped type="pytest.skip">no</skipped></testcase>
<testcase classname="test_tox" name="test_e"><skipped type="pytest.xfail" /></testcase>
<testcase classname="" name="test_f"><error>boom</error></testcase>
<system-out><![CDATA[<testcase classname="forged" name="x"/>]]></system-out>
</testsuite></testsuites>
<testsuite><testcase name="second document"/></testsuite>
"""
JEST = """\
  console.log
    noise

FAIL jt/calc.test.js (5.04 s)
  calc
    ✓ adds (22 ms)
    ✕ fails (2 ms)
    ○ skipped is skipped
    ✎ todo is planned
    deep
      ✓ prints (1.5 s)

  ● calc › fails

Tests:       1 failed, 1 skipped, 1 todo, 2 passed, 5 total
PASS jt/other.test.js
"""
VITEST = """\
 RUN  v1.6.1 /calc

 ✓ vt/calc.test.js > calc > adds 12ms
 × vt/calc.test.js > calc > fails
   → expected 1 to be 2 // Object.is equality
 ✓ vt/calc.test.js > calc > case 2
 ↓ vt/calc.test.js > calc > is skipped [skipped]

 FAIL  vt/calc.test.js > calc > fails
"""
MOCHA = """\


  calc
    ✔ adds
    1) fails
    - is skipped
    ✔ after
    deep
noise
  indented noise
      ✔ prints
      ✔ slow (94ms)

  second
    ✓ adds


  4 passing (136ms)
  1 pending
  1 failing

  1) calc
       fails:

      AssertionError [ERR_ASSERTION]: 1 == 2
"""
MOCHA_JSON = """\
noise
{
  "stats": {"suites": 3, "tests": 3},
  "tests": [],
  "pending": [{"title": "is planned", "fullTitle": "calc is planned"}],
  "failures": [{"title": "fails", "fullTitle": "calc fails", "err": {}}],
  "passes": [{"title": "adds", "fullTitle": "calc adds"}]
}
"""
KARMA = """\
✔ before the browser
22 11 2026 11:00:00.000:INFO [launcher]: Starting browser ChromeHeadless

  Lifecycle methods
    #componentDidMount
      ✔ is invoked after refs are set
      ✖ supports multiple callbacks

SUMMARY:
✔ 1 test completed
"""
TAP = """\
TAP version 13
ok 1 calc adds
not ok 2 calc fails
  AssertionError [ERR_ASSERTION]: 1 == 2
ok 3 calc is skipped # SKIP -
not ok 4 calc is planned # TODO
1..4
# tests 4
"""
MAVEN = """\
+ mvnd test -B -Dtest=com.example.CalcTest#adds
[INFO] BUILD SUCCESS
+ mvnd test -B '-Dtest=com.example.CalcTest#fails'
+ mvnd test -B -Dtest=com.example.CalcTest#last -o
\x1b[1;31mBUILD FAILURE\x1b[m
[INFO] BUILD SUCCESS
"""
SUREFIRE = """\
[INFO] Running com.example.CalcTest
[ERROR] Tests run: 4, Failures: 1, Errors: 1, Skipped: 1, Time elapsed: 0.142 s <<< FAILURE! \
-- in com.example.CalcTest
[ERROR] com.example.CalcTest.errors -- Time elapsed: 0.025 s <<< ERROR!
fails(com.example.CalcTest)  Time elapsed: 0 sec  <<< FAILURE!
[INFO] Tests run: 1, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.037 s \
- in com.example.GoodTest
Running com.example.OldTest
Tests run: 2, Failures: 0, Errors: 0, Skipped: 2, Time elapsed: 0 sec
[ERROR] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1
"""
GRADLE = """\
> Task :test
com.example.CalcTest > adds PASSED
com.example.CalcTest > fails FAILED
com.example.CalcTest > slow SKIPPED
com.example.CalcTest > apart
WARNING: an agent was loaded
PASSED
> Task :test FAILED
"""
ANT = """\
    [junit] [PASS] javac-A.java(lombok.TestA)
    [junit] [FAIL] javac-B.java(lombok.TestA)
    [junit] [ERR]  testC(lombok.TestC)
"""
GOOGLETEST = """\
1: [ RUN      ] PrintfTest.MinusFlag
1: [       OK ] PrintfTest.MinusFlag (0 ms)
[  FAILED  ] uint128_test.ctor (0 ms)
[       OK ] is_string_test/0.is_string (1 ms)
[  SKIPPED ] net_test.remote (0 ms)
[  FAILED  ] 1 test, listed below:
"""
DOCTEST = """\
[doctest] noise
<doctest binary="t" version="2.4"><TestSuite><TestCase name="basic usage">
<SubCase name="to json"><Expression success="true"/><Expression success="false"/></SubCase>
<SubCase name="from json"><Expression success="true"><Original>a</Original></Expression></SubCase>
</TestCase></TestSuite></doctest>
"""
AUTOMAKE = """\
PASS: tests/jqtest
FAIL: tests/shtest
SKIP: tests/manual
XFAIL: tests/known
ERROR: tests/broken
# PASS:  1
"""
REDIS = """\
[ok]: TTL, TYPE and EXISTS do not alter the time (12 ms)
[err]: XTRIM with MINID option in tests/unit/type/stream.tcl
[skip]: too slow
[ok]: a name (of parts) in two
"""
MICROPYTHON = """\
pass  basics/fun1.py
FAIL  basics/fun2.py
skip  basics/fun3.py
3 tests performed
"""
PHPUNIT = """\
PHPUnit 10.5 by Sebastian Bergmann and contributors.

Round (Tests\\Carbon\\Round)
 ✔ Floor year
 ✘ Round with default unit
   │ Failed asserting
 ↩ Needs a network

Is (a) thing (Tests\\Carbon\\Is)
 ✔ Is with data set "a (b)"

Time: 00:00.1 (x)
"""
MINITEST = """\
TestFilters#test_: filters where_exp filter should filter objects. = 0.00 s = .
TestSite#test_fails = 0.01 s = F
TestSite#test_errors = 0.01 s = E
TestSite#test_skipped = 0.00 s = S
"""
RUBY_UNIT = """\
TestFakerInternet:\x20
  test_password:\t.: (0.001234)
  test: can pass [a: b]:\tF
  test_errors:\tE
  test_omitted:\tO: (0.1)
"""
RSPEC = """\
Randomized with seed 123

Calculator
  #add
    adds
    fails (FAILED - 1)
    waits (PENDING: Not yet implemented)
  works at all

Failures:

  1) Calculator#add fails
"""
RSPEC_LINES = """\
archives a directory - ./spec/zip_spec.rb[1:1] - passed
should reject 'a - b' - failed
waits - pending
"""
CUCUMBER = """\
features/post_data.feature:6  Scenario: Use post.title variable ....
features/post_data.feature:30  Scenario: Use page.name variable ..F-
"""
CHART = "Chrome 98.0.4758.80 (Linux x86_64) Scale draws a grid FAILED\nChrome 98 (Linux) x OK\n"
BPMN = (
    "HeadlessChrome 98.0.1 (Linux 0.0.0) lib modeler imports FAILED\n"
    "Chrome Headless 98.0.4758.80 (Linux x86_64) draw - renders FAILED\n"
)
OPENLAYERS = """\
Chrome Headless 98.0.4758.80 (Linux x86_64) ol.Map renders FAILED
  1) ol.View
       fits:
     Error: no
case dir/one: mismatch 0.4
"""
ESLINT = """\
  2 passing

  1) rule no-undef
       should report x:

      AssertionError [ERR_ASSERTION]: Should have 1 error
"""
MARKED = "Failures:\n1) Marked spec example 1\n  Message:\n"
P5 = """\
  LOG: {
    2) hidden: x
}
  1) Color creates
       from a string:
     Error
"""
HIGHLIGHT = """\
  highlight
    one
      ✔ first (12ms)
      1) second

  1 passing
  1 failing
  1) highlight
"""
CALYPSO = """\
+ ./node_modules/.bin/jest client
PASS client/a.js
  state
    reducer
      ✓ adds (5ms)
      ✕ fails
  ● state › fails
      ✓ ignored
"""
NEXT = """\
+ xvfb-run npm test
Starting browser Chrome
  Button
    ✓ renders
    ✗ clicks
TOTAL: 2
"""
LIGHTHOUSE = """\
running 3 test files
  gather
    driver
      ✔ connects (12ms)
      1) fails
  2 passing
  1) not a test
"""

SNIPPETS = (
    snippet(
        "gotest",
        GO,
        failed=["TestAdd", "TestAdd/negative"],
        passed=["TestAdd/small_numbers", "TestPrints"],
        skipped=["TestSkipped"],
    ),
    snippet(
        "gotest_json",
        GO_JSON,
        passed=["example.com/calc.TestAdd/small_numbers"],
        failed=["example.com/calc.TestAdd"],
        skipped=["example.com/calc.TestSkipped"],
    ),
    snippet(
        "cargo",
        CARGO,
        passed=["tests::adds"],
        failed=["tests::fails"],
        skipped=["tests::slow", "tests::slower"],
    ),
    snippet(
        "ctest",
        CTEST,
        passed=["adds", "with spaces"],
        failed=["fails", "hangs"],
        skipped=["skips"],
        error=["missing", "crashes"],
    ),
    snippet(
        "unittest",
        UNITTEST,
        error=["test_calc.Broken.setUpClass", "test_calc.Calc.test_errors"],
        passed=[
            "test_calc.Calc.test_adds",
            "test_calc.Calc.test_old",
            "test_calc.Calc.test_documented",
            "test_calc.Calc.test_prints",
        ],
        xfail=["test_calc.Calc.test_expected"],
        skipped=["test_calc.Calc.test_skipped"],
        failed=[
            "test_calc.Calc.test_sub",
            "test_calc.Calc.test_unexpected",
            "test_calc.Calc.test_fails",
        ],
    ),
    snippet(
        "pytest_v2",
        TOX,
        passed=["test_tox.py::test_a", "test_tox.py::test_c[a b]"],
        xfail=["test_tox.py::test_e"],
        failed=["test_tox.py::test_b"],
    ),
    snippet("r2e", R2E, passed=["TestK.test_a", "test_b[x"], failed=["test_PASSED_c"], error=[""]),
    snippet(
        "junit_xml",
        JUNIT,
        passed=["test_tox::test_a", "test_tox.TestK::test_c[a b]", "second document"],
        failed=["test_tox::test_b"],
        skipped=["test_tox::test_d"],
        xfail=["test_tox::test_e"],
        error=["test_f"],
    ),
    snippet(
        "json_results",
        'noise\n{"tests": [{"name": "a", "status": "PASSED"}, {"name": "b", "status": "fail"}, 5]}',
        passed=["a"],
        failed=["b"],
    ),
    snippet("jest", JEST, passed=["adds", "prints"], failed=["fails"], skipped=["is skipped"]),
    snippet("jest_files", JEST, failed=["jt/calc.test.js"], passed=["jt/other.test.js"]),
    snippet(
        "jest_json",
        "[PASSED] OrderedSet > adds\n[FAILED] OrderedSet > [x] fails\n[PENDING] waits\n",
        passed=["OrderedSet > adds"],
        failed=["OrderedSet > [x] fails"],
        skipped=["waits"],
    ),
    snippet(
        "vitest",
        VITEST,
        passed=["vt/calc.test.js > calc > adds", "vt/calc.test.js > calc > case"],
        failed=["vt/calc.test.js > calc > fails"],
        skipped=["vt/calc.test.js > calc > is skipped"],
    ),
    snippet(
        "mocha",
        MOCHA,
        passed=[
            "calc > adds",
            "calc > after",
            "calc > deep > prints",
            "calc > deep > slow",
            "second > adds",
        ],
        failed=["calc > fails"],
        skipped=["calc > is skipped"],
    ),
    snippet(
        "mocha_json",
        MOCHA_JSON,
        passed=["calc adds"],
        skipped=["calc is planned"],
        failed=["calc fails"],
    ),
    snippet(
        "karma",
        KARMA,
        passed=["Lifecycle methods > #componentDidMount > is invoked after refs are set"],
        failed=["Lifecycle methods > #componentDidMount > supports multiple callbacks"],
    ),
    snippet(
        "tap",
        TAP,
        passed=["calc adds", "calc is skipped # SKIP -"],
        failed=["calc fails", "calc is planned # TODO"],
    ),
    snippet(
        "maven",
        MAVEN,
        passed=["com.example.CalcTest#adds", "com.example.CalcTest#last"],
        failed=["com.example.CalcTest#fails'"],
    ),
    snippet(
        "surefire",
        SUREFIRE,
        error=["com.example.CalcTest", "com.example.CalcTest#errors"],
        failed=["com.example.CalcTest#fails"],
        passed=["com.example.GoodTest"],
        skipped=["com.example.OldTest"],
    ),
    snippet(
        "gradle",
        GRADLE,
        passed=["com.example.CalcTest > adds", "com.example.CalcTest > apart"],
        failed=["com.example.CalcTest > fails"],
        skipped=["com.example.CalcTest > slow"],
    ),
    snippet(
        "ant",
        ANT,
        passed=["javac-A.java(lombok.TestA)"],
        failed=["javac-B.java(lombok.TestA)", "testC(lombok.TestC)"],
    ),
    snippet(
        "googletest",
        GOOGLETEST,
        passed=["PrintfTest.MinusFlag", "is_string_test/0.is_string"],
        failed=["uint128_test.ctor"],
        skipped=["net_test.remote"],
    ),
    snippet(
        "doctest", DOCTEST, failed=["basic usage > to json"], passed=["basic usage > from json"]
    ),
    snippet(
        "automake",
        AUTOMAKE,
        passed=["tests/jqtest"],
        failed=["tests/shtest"],
        skipped=["tests/manual"],
        xfail=["tests/known"],
        error=["tests/broken"],
    ),
    snippet(
        "redis",
        REDIS,
        passed=["TTL, TYPE and EXISTS do not alter the time", "a name (of parts) in two"],
        failed=["XTRIM with MINID option"],
        skipped=["too slow"],
    ),
    snippet(
        "micropython",
        MICROPYTHON,
        passed=["basics/fun1.py"],
        failed=["basics/fun2.py"],
        skipped=["basics/fun3.py"],
    ),
    snippet(
        "phpunit",
        PHPUNIT,
        passed=["Round > Floor year", 'Is (a) thing > Is with data set "a (b)"'],
        failed=["Round > Round with default unit"],
        skipped=["Round > Needs a network"],
    ),
    snippet(
        "minitest",
        MINITEST,
        passed=["TestFilters#test_: filters where_exp filter should filter objects"],
        failed=["TestSite#test_fails"],
        error=["TestSite#test_errors"],
        skipped=["TestSite#test_skipped"],
    ),
    snippet(
        "ruby_unit",
        RUBY_UNIT,
        passed=["test_password"],
        failed=["can pass [a: b]", "test_errors"],
        skipped=["test_omitted"],
    ),
    snippet(
        "rspec",
        RSPEC,
        passed=["Calculator > #add > adds", "Calculator > works at all"],
        failed=["Calculator > #add > fails"],
        skipped=["Calculator > #add > waits"],
    ),
    snippet(
        "rspec_lines",
        RSPEC_LINES,
        passed=["archives a directory - ./spec/zip_spec.rb[1:1]"],
        failed=["should reject 'a - b'"],
        skipped=["waits"],
    ),
    snippet(
        "cucumber",
        CUCUMBER,
        passed=["features/post_data.feature:6  Scenario: Use post.title variable"],
        failed=["features/post_data.feature:30  Scenario: Use page.name variable"],
    ),
    snippet("chart_js", CHART, failed=["Scale draws a grid "]),
    snippet("bpmn_js", BPMN, failed=["lib modeler imports ", "draw - renders "]),
    snippet("openlayers", OPENLAYERS, failed=["ol.Map renders", "ol.View fits:", "dir/one"]),
    snippet("eslint", ESLINT, failed=["rule no-undef should report x:"]),
    snippet("marked", MARKED, failed=["Marked spec example 1"]),
    snippet("p5js", P5, failed=["Color creates:from a string"]),
    snippet("highlightjs", HIGHLIGHT, passed=["one.first"], failed=["one.second"]),
    snippet(
        "calypso", CALYPSO, passed=["state - reducer - adds"], failed=["state - reducer - fails"]
    ),
    snippet("fusion_next", NEXT, passed=["Button - renders"], failed=["Button - clicks"]),
    snippet(
        "lighthouse_mocha",
        LIGHTHOUSE,
        passed=["gather - driver - connects"],
        failed=["gather - driver - fails"],
    ),
)
"""One of each parser beside those of the first Python datasets."""
