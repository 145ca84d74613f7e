package deleted

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestANoteHasTheAnswer(t *testing.T) {
	bundle := t.TempDir()
	if Is(bundle) {
		t.Error("a note that nobody wrote")
	}
	for _, answer := range []string{"\x08\x01", strings.Repeat("x", maxAnswer)} {
		if err := Write(bundle, []byte(answer)); err != nil {
			t.Fatal(err)
		}
		if got, ok := Read(bundle); !ok || string(got) != answer || !Is(bundle) {
			t.Errorf("%q, %v", got, ok)
		}
	}
}

// TestANoteMayHaveNoAnswer: the note is empty if the shim is killed, or the disk is full, while it is written.
func TestANoteMayHaveNoAnswer(t *testing.T) {
	bundle := t.TempDir()
	if err := Write(bundle, []byte(strings.Repeat("x", maxAnswer+1))); err != nil {
		t.Fatal(err)
	}
	if got, ok := Read(bundle); ok || !Is(bundle) {
		t.Errorf("too long: %q, %v", got, ok)
	}
	for _, text := range []string{"", "\x00", "\x05abcd", "\x03abcd", strings.Repeat("x", 4096)} {
		if err := os.WriteFile(filepath.Join(bundle, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := Read(bundle); ok || !Is(bundle) {
			t.Errorf("%.10q: %q, %v", text, got, ok)
		}
	}
}

func TestOnlyTheQuestionWhatBecameOfAContainerIsAnswered(t *testing.T) {
	for line, want := range map[string]string{
		"shim -namespace monopod -address /a.sock -publish-binary /m -id c1 -bundle /b/c1 delete": "c1",
		"shim -namespace monopod -id c1 -debug delete":                                            "c1",
		"shim -namespace monopod -id c1 start":                                                    "",
		"shim -namespace monopod -id c1":                                                          "",
		"shim -namespace monopod -id delete":                                                      "",
		"shim -namespace monopod delete":                                                          "",
		"shim -namespace monopod -id ../c1 delete":                                                "",
		"shim -namespace monopod -id .. delete":                                                   "",
		"":                                                                                        "",
	} {
		id, ok := parse(strings.ReplaceAll(line, " ", "\x00") + "\x00")
		if ok != (want != "") || ok && id != want {
			t.Errorf("%q: %q, %v", line, id, ok)
		}
	}
	if id, ok := parse("shim\x00-id\x00c1\x00delete"); ok {
		t.Errorf("a command line that was cut off: %q", id)
	}
}
