package systemd_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"monopod/node/systemd"
)

func TestTheDropInGoesWhereItCanBeWritten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lasting, volatile := filepath.Join(file, "x"), filepath.Join(dir, "run")
	if err := systemd.AllowDelay(31500*time.Millisecond, lasting, volatile); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(volatile, systemd.DropIn))
	if err != nil || string(b) != "# Written by monopod, for the time that its pods need at a shutdown (shutdownGracePeriod).\n[Login]\nInhibitDelayMaxSec=32\n" {
		t.Errorf("%q, %v", b, err)
	}
	if systemd.AllowDelay(time.Second, lasting) == nil {
		t.Error("nothing could be written, and that is no error")
	}
	if removed, err := systemd.RemoveDropIns(volatile); !removed || err != nil {
		t.Errorf("%v, %v", removed, err)
	}
	if removed, err := systemd.RemoveDropIns(volatile); removed || err != nil {
		t.Errorf("again: %v, %v", removed, err)
	}
}
