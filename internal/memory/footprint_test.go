package memory

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

const someSmaps = `00400000-01a2b000 r-xp 00000000 fd:00 1234                               /opt/my programs/monopod
Size:              22700 kB
KernelPageSize:        4 kB
Rss:               12968 kB
Pss:               12968 kB
Shared_Dirty:          0 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
01a2b000-02000000 r--p 0162b000 fd:00 1234                               /opt/my programs/monopod
Rss:               13020 kB
Private_Dirty:     13020 kB
Anonymous:             0 kB
02000000-02001000 r--p 01c00000 fd:00 1234                               /opt/my programs/monopod
Rss:                   4 kB
Private_Dirty:         0 kB
Anonymous:             4 kB
02001000-02100000 rw-p 01c01000 fd:00 1234                               /opt/my programs/monopod
Rss:                 524 kB
Anonymous:           524 kB
c000000000-c000800000 rw-p 00000000 00:00 0
Rss:                8000 kB
Anonymous:          8000 kB
7f0000000000-7f0000001000 r--p 00000000 fd:00 99                         /var/lib/monopod/meta.db
Rss:                   4 kB
Anonymous:             0 kB
7ffe00000000-7ffe00001000 r-xp 00000000 00:00 0                          [vdso]
Rss:                   4 kB
Anonymous:             0 kB
`

// TestOnlyUnchangedPartsOfTheProgramAreForgotten parses the smaps of a process with code, constants, relocated pages, data, and other
// files.
func TestOnlyUnchangedPartsOfTheProgramAreForgotten(t *testing.T) {
	got, err := unchanged(strings.NewReader(someSmaps), "/opt/my programs/monopod")
	want := []region{{0x400000, 0x1a2b000, 12968 << 10}, {0x1a2b000, 0x2000000, 13020 << 10}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := unchanged(strings.NewReader("nonsense\nRss: 4 kB\n"), "/monopod"); err == nil {
		t.Errorf("nonsense: %+v", got)
	}
}

// TestTheProgramIsReadAgain drops the pages of the running test and continues.
func TestTheProgramIsReadAgain(t *testing.T) {
	resident := func() (sum int64) {
		exe, err := os.Readlink("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		smaps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		parts, err := unchanged(bytes.NewReader(smaps), exe)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			sum += p.resident
		}
		return sum
	}
	before := resident()
	forgotten, err := forgetProgram()
	if err != nil || forgotten <= 0 {
		t.Fatalf("%d bytes, %v", forgotten, err)
	}
	if after := resident(); after >= before*3/4 {
		t.Errorf("%d of %d bytes are still there", after, before)
	}
}
