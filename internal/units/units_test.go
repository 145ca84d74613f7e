package units

import (
	"testing"
	"time"

	"monopod/node/budget"
)

func TestBytesAreDecimal(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1500: "1.5 kB", 12_340_000: "12.3 MB", 5e9: "5.0 GB", 7e12: "7.0 TB", 9e18: "9000.0 PB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := Mebibytes(1.5 * (1 << 20)); got != "1.5 MiB" {
		t.Error(got)
	}
}

func TestProgressOfAPull(t *testing.T) {
	for want, tt := range map[string][2]int64{"contacting the registry": {0, 0}, "0 B of 2.0 kB (0%)": {0, 2000}, "1.5 kB of 2.0 kB (75%)": {1500, 2000}} {
		if got := Progress(tt[0], tt[1]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTimesAreAgo(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for age, want := range map[time.Duration]string{0: "0s", 90 * time.Second: "90s", 5 * time.Hour: "5h", 50 * time.Hour: "2d2h", -time.Second: "0s", -time.Minute: "<unknown>"} {
		if got := Ago(now.Add(-age), now); got != want {
			t.Errorf("%v: %s, want %s", age, got, want)
		}
	}
	if got := Ago(time.Time{}, now); got != "<unknown>" {
		t.Error(got)
	}
}

func TestBudgetsInWords(t *testing.T) {
	for want, l := range map[string]budget.Limits{
		"all the memory and all processors":     {},
		"64.0 MiB of memory and all processors": {Memory: 64 << 20},
		"all the memory and 0.25 processors":    {MilliCPU: 250},
		"1.0 MiB of memory and 2.00 processors": {Memory: 1 << 20, MilliCPU: 2000},
	} {
		if got := Budget(l); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
