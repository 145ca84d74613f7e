package boottime

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTheBootHasAnID(t *testing.T) {
	a, err := ID()
	b, errAgain := ID()
	if err != nil || errAgain != nil || a != b || len(a) != 36 {
		t.Errorf("%q (%v), then %q (%v)", a, err, b, errAgain)
	}
}

func TestTheTimeSinceTheBootIsThatOfTheKernel(t *testing.T) {
	before := Since()
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Fatal(err)
	}
	after := Since()
	word, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(word, 64)
	if err != nil {
		t.Fatal(err)
	}
	// The kernel prints hundredths, cut off.
	if up := time.Duration(seconds * float64(time.Second)); up < before-20*time.Millisecond || up > after+20*time.Millisecond {
		t.Errorf("the machine is up for %v; %v before that, %v after", up, before, after)
	}
}

func TestNowIsAMomentOfThisBoot(t *testing.T) {
	id, err := ID()
	a, b := Now(), Now()
	if err != nil || a.Boot != id || b.Boot != id || a.Since == 0 || b.Since < a.Since || a.Wall.Location() != time.UTC || time.Since(a.Wall) > time.Minute {
		t.Errorf("%+v, then %+v (%v)", a, b, err)
	}
}
