package sampletest

import (
	"fmt"
	"testing"
)

func TestASampleIsAThird(t *testing.T) {
	n := 0
	for i := range 3000 {
		if chosen(fmt.Sprint("case ", i)) {
			n++
		}
	}
	if n < 900 || n > 1100 {
		t.Errorf("%d of 3000 chosen", n)
	}
}
