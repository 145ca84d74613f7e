package capacity

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func amount(t testing.TB, s string) Amount {
	t.Helper()
	a, err := ParseAmount(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func list(t testing.TB, written map[string]string) corev1.ResourceList {
	t.Helper()
	l, err := ParseReserved(written)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func texts(l corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, q := range l {
		out[string(name)] = q.String()
	}
	return out
}

func same(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
	for name, q := range want {
		if got[name] != q {
			t.Errorf("%s: %s is %q, want %q", what, name, got[name], q)
		}
	}
}

const gib = 1 << 30

func TestCapacityAndWhatIsAllocatableOfIt(t *testing.T) {
	m := Machine{MilliCPU: 4000, Memory: 8 * gib, Storage: 100 * gib, HugePages: map[int64]int64{2 << 20: gib, gib: 0}, PIDs: 32768}
	same(t, "capacity", texts(Of(m, 110)), map[string]string{
		"cpu": "4", "memory": "8Gi", "ephemeral-storage": "100Gi", "pods": "110", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0",
	})
	same(t, "nothing kept", texts(Allocatable(Of(m, 110), Reserved{})), map[string]string{
		"cpu": "4", "memory": "7Gi", "ephemeral-storage": "100Gi", "pods": "110", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0",
	})
	r := Reserved{
		System: list(t, map[string]string{"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "5Gi", "pid": "1000"}),
		Kube:   list(t, map[string]string{"cpu": "250m", "memory": "256Mi"}),
		Memory: amount(t, "256Mi"), Storage: amount(t, "10%"),
	}
	same(t, "with all kept", texts(Allocatable(Of(m, 110), r)), map[string]string{
		"cpu": "3250m", "memory": "5632Mi", "ephemeral-storage": "85Gi", "pods": "110", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0",
	})
	if got, want := LimitsOf(m, r), (Limits{Memory: 8*gib - gib - gib/4, MilliCPU: 3250, PIDs: 31768}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	if got := LimitsOf(m, Reserved{Memory: amount(t, "1Gi")}); got != (Limits{}) {
		t.Errorf("limits without reservations: %+v", got)
	}
	if got := LimitsOf(m, Reserved{System: list(t, map[string]string{"memory": "9Gi"})}); got.Memory != 1 {
		t.Errorf("limits of a machine that is too small: %+v", got)
	}
}

func TestAMachineIsTakenForALargerOne(t *testing.T) {
	claimed, err := ParseClaimed(map[string]string{"cpu": "2500m", "ephemeral-storage": "1Ti"})
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{MilliCPU: 2000, Memory: 1 << 30, Storage: 1 << 30, PIDs: 100, HugePages: map[int64]int64{2 << 20: 4 << 20}}
	want := m
	want.MilliCPU, want.Storage = 2500, 1<<40
	if got := m.As(claimed); got.MilliCPU != want.MilliCPU || got.Storage != want.Storage || got.Memory != want.Memory || got.PIDs != want.PIDs {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := m.As(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}); got.Memory != 2<<30 || got.MilliCPU != 2000 {
		t.Errorf("%+v", got)
	}
	for _, bad := range []map[string]string{{"pid": "1"}, {"cpu": "-1"}, {"gpu": "1"}} {
		if got, err := ParseClaimed(bad); err == nil {
			t.Errorf("%v is taken for %v", bad, got)
		}
	}
}

func TestAMachineOfWhichNothingIsLeft(t *testing.T) {
	m := Machine{MilliCPU: 1000, Memory: gib}
	if err := Check(m, Reserved{System: list(t, map[string]string{"cpu": "900m", "memory": "900Mi"})}); err != nil {
		t.Error(err)
	}
	for want, r := range map[string]Reserved{
		"memory: 1100Mi is reserved, but the machine has 1Gi": {System: list(t, map[string]string{"memory": "1000Mi"}), Memory: amount(t, "100Mi")},
		"cpu: 1 is reserved, but the machine has 1":           {Kube: list(t, map[string]string{"cpu": "1"})},
	} {
		if err := Check(m, r); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int64{"100Mi": 100 << 20, "10%": 1000, "0%": 0, "100%": 10000, "2.5%": 250, "0": 0, "1k": 1000} {
		if got := amount(t, text).Of(10000); got != want {
			t.Errorf("%s of 10000: %d, want %d", text, got, want)
		}
		if got := amount(t, text).String(); got != text {
			t.Errorf("%s is written as %s", text, got)
		}
		if got := amount(t, text).IsZero(); got != (want == 0) {
			t.Errorf("%s: is zero: %v", text, got)
		}
	}
	for _, bad := range []string{"", "%", "101%", "-1%", "NaN%", "-5Mi", "much", "5 Mi"} {
		if a, err := ParseAmount(bad); err == nil {
			t.Errorf("%q is %v", bad, a)
		}
	}
	for _, bad := range []map[string]string{{"gpu": "1"}, {"cpu": "x"}, {"memory": "-1"}, {"pods": "5"}} {
		if l, err := ParseReserved(bad); err == nil {
			t.Errorf("%v is %v", bad, l)
		}
	}
}

// Whatever is reserved, the rest is never below zero nor above the capacity, and a larger reservation never leaves more.
func TestKeepingMoreNeverLeavesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string) int64 { return rapid.Int64Range(0, 1<<40).Draw(t, name) }
		m := Machine{MilliCPU: n("cpu"), Memory: n("memory"), Storage: n("storage"), HugePages: map[int64]int64{2 << 20: n("huge")}, PIDs: n("pids")}
		draw := func(name string) corev1.ResourceList {
			l := corev1.ResourceList{}
			for _, r := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", PID} {
				l[r] = *resource.NewMilliQuantity(n(name+string(r)), resource.DecimalSI)
			}
			return l
		}
		less := Reserved{System: draw("system"), Memory: Amount{Share: rapid.Float64Range(0, 1).Draw(t, "share")}}
		more := less
		more.Kube = draw("kube")
		all := Of(m, 10)
		a, b := Allocatable(all, less), Allocatable(all, more)
		whole := Allocatable(all, Reserved{})
		for name, q := range all {
			if w := whole[name]; w.Cmp(q) != 0 && name != corev1.ResourceMemory { // of which huge pages take a part
				t.Fatalf("%s: nothing is kept, and of %s there are %s left", name, &q, &w)
			}
			x, inA := a[name]
			y, inB := b[name]
			if !inA || !inB {
				t.Fatalf("%s is missing", name)
			}
			if x.Cmp(q) > 0 || y.Cmp(x) > 0 || y.Sign() < 0 {
				t.Fatalf("%s: of %s there are %s left, and with more kept %s", name, &q, &x, &y)
			}
		}
	})
}

func machineFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func usual() map[string]string {
	return map[string]string{
		fileMeminfo: "MemTotal:       16318456 kB\nMemFree: 5 kB\n", filePIDMax: "4194304\n", fileThreads: "127000\n", fileOnline: "0-3,6,8-9\n",
		dirPages + "/hugepages-2048kB/nr_hugepages": "512\n", dirPages + "/hugepages-1048576kB/nr_hugepages": "0\n",
	}
}

func TestWhatAMachineHasIsReadFromTheKernel(t *testing.T) {
	m, err := read(machineFiles(t, usual()), filepath.Join(t.TempDir(), "not", "yet"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Storage <= 0 {
		t.Errorf("a file system of %d bytes", m.Storage)
	}
	if m.MilliCPU != 7000 || m.Memory != 16318456*1024 || m.PIDs != 127000 || len(m.HugePages) != 2 || m.HugePages[2<<20] != gib {
		t.Errorf("%+v", m)
	}
	without := usual()
	delete(without, dirPages+"/hugepages-2048kB/nr_hugepages")
	delete(without, dirPages+"/hugepages-1048576kB/nr_hugepages")
	if m, err = read(machineFiles(t, without), t.TempDir()); err != nil || len(m.HugePages) != 0 {
		t.Errorf("without huge pages: %+v, %v", m, err)
	}
	for file, text := range map[string]string{fileMeminfo: "nothing\n", filePIDMax: "many", fileOnline: "3-1", fileThreads: ""} {
		broken := usual()
		broken[file] = text
		if m, err := read(machineFiles(t, broken), t.TempDir()); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s with %q: %+v, %v", file, text, m, err)
		}
	}
}

func TestThisMachineHasSomething(t *testing.T) {
	m, err := Read(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m.MilliCPU < 1000 || m.Memory < 1<<20 || m.Storage < 1<<20 || m.PIDs < 100 {
		t.Errorf("%+v", m)
	}
}
