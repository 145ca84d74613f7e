package kubeletapi

import (
	"strings"
	"testing"
)

func TestAnUnwritableDirectoryIsReported(t *testing.T) {
	if err := writable(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := writable("/proc"); err == nil || !strings.Contains(err.Error(), "file system is full") {
		t.Errorf("error %v", err) // it has no blocks
	}
	if err := writable("/no/such/directory"); err == nil {
		t.Error("no error of what is not there")
	}
}
