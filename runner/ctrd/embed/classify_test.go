package embed

import (
	"errors"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestMessagesOfEachEndAreDropped(t *testing.T) {
	gone := errors.New("exit status 1")
	for _, tt := range []struct {
		message, stderr string
		err             error
		want            bool
	}{
		{message: "copy shim log after reload", want: true},
		{message: "cgroups: epoll wait", want: true},
		{message: "failed to delete dead shim", err: gone, stderr: "getwd: no such file or directory", want: true},
		{message: "failed to clean up after shim disconnected", err: errors.New("getwd: no such file or directory"), want: true},
		{message: "failed to delete dead shim", err: gone, stderr: "permission denied"},
		{message: "failed to delete dead shim"},
		{message: "garbage collection failed", err: gone},
	} {
		e := &logrus.Entry{Message: tt.message, Data: logrus.Fields{"stderr": tt.stderr}}
		if tt.err != nil {
			e.Data[logrus.ErrorKey] = tt.err
		}
		if got := noise(e); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
	if !harmless("failed check for fsverity support") || harmless("failed check") {
		t.Error("what asks nobody to do anything")
	}
}
