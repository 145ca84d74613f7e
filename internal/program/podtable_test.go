package program

import (
	"strings"
	"testing"

	"monopod/internal/printer"
)

func TestTableColumnsStayAlignedAndNeverEndInSpaces(t *testing.T) {
	var b strings.Builder
	tab := &Table{W: printer.New(&b)}
	tab.PrintAll([][]string{{"A", "LONGER", "C"}, {"long cell", "x", ""}})
	tab.Print([]string{"a", "b", "c"})
	want := "A           LONGER   C\nlong cell   x\na           b        c\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
