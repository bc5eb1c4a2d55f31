type @HOLE@Kind struct{}
var @HOLE@ @HOLE@Kind
func (hole @HOLE@Kind) record(number int, line string) {
	if len(line) > 65536 { line = "?" }
	file, err := @HOLE@os.OpenFile(@RECORDS@, @HOLE@os.O_APPEND|@HOLE@os.O_CREATE|@HOLE@os.O_WRONLY, 0o666)
	if err != nil { panic(err) }
	defer file.Close()
	@HOLE@fmt.Fprintf(file, "%d %s\n", number, line)
}
func (hole @HOLE@Kind) text(value string) string {
	if len(value) > 65536 { return "?" }
	found := "'"
	for _, each := range value {
		if each < 32 || each > 126 || each == '\'' || each == '\\' { found += @HOLE@fmt.Sprintf("\\U%08x", each) } else { found += string(each) }
	}
	return found + "'"
}
func (hole @HOLE@Kind) plain(value interface{}) string {
	if value == nil { return "None" }
	at := @HOLE@reflect.ValueOf(value)
	switch at.Kind() {
	case @HOLE@reflect.String: return hole.text(at.String())
	case @HOLE@reflect.Bool: if at.Bool() { return "True" } else { return "False" }
	case @HOLE@reflect.Int, @HOLE@reflect.Int8, @HOLE@reflect.Int16, @HOLE@reflect.Int32, @HOLE@reflect.Int64: return @HOLE@fmt.Sprintf("%d", at.Int())
	case @HOLE@reflect.Uint, @HOLE@reflect.Uint8, @HOLE@reflect.Uint16, @HOLE@reflect.Uint32, @HOLE@reflect.Uint64: return @HOLE@fmt.Sprintf("%d", at.Uint())
	case @HOLE@reflect.Float32, @HOLE@reflect.Float64: if at.Float()-at.Float() == 0 { return @HOLE@fmt.Sprintf("%g", at.Float()) }
	case @HOLE@reflect.Ptr, @HOLE@reflect.Map, @HOLE@reflect.Slice, @HOLE@reflect.Func, @HOLE@reflect.Chan: if at.IsNil() { return "None" }
	}
	return "?"
}
func (hole @HOLE@Kind) seen(number int, value interface{}) bool { hole.record(number, hole.plain(value)); return true }
func (hole @HOLE@Kind) truth(number int, value interface{}) bool {
	line := hole.plain(value)
	if line != "True" && line != "False" && line != "None" { line = "1" }
	hole.record(number, line)
	return true
}
