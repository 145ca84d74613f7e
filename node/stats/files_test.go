package stats

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

// file writes a file and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"file": text})
	return filepath.Join(dir, "file")
}

func TestNumbersOfFiles(t *testing.T) {
	for text, want := range map[string]struct {
		n  uint64
		ok bool
	}{"17\n": {17, true}, "0": {0, true}, "18446744073709551615\n": {1<<64 - 1, true}, "max\n": {}, "": {}, "-1\n": {}, "1 2\n": {}} {
		if n, ok := (&reader{}).number(file(t, text)); n != want.n || ok != want.ok {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	if n, ok := (&reader{}).number(t.TempDir()); n != 0 || ok {
		t.Errorf("a directory has the number %d", n)
	}
}

func TestWordsWithNumbers(t *testing.T) {
	for text, want := range map[string]struct {
		a, b  uint64
		there bool
	}{
		"a 1\nb 2\n":                 {1, 2, true},
		"a: 3 kB\nb:\t 4 kB\n":       {3072, 4096, true},
		"ab 5\nb 6":                  {0, 6, true},
		"c 7\n":                      {0, 0, true},
		"a max\nb -1\n a 2\n":        {0, 0, false},
		"\n\na\nb\n":                 {0, 0, false},
		"a 8 kb\nb 9\n\nb 10\nb x\n": {0, 10, true},
	} {
		var a, b uint64
		if there := (&reader{}).counts(map[string]*uint64{"a": &a, "b": &b}, file(t, text)); a != want.a || b != want.b || there != want.there {
			t.Errorf("%q: a %d, b %d, %v", text, a, b, there)
		}
	}
}

func TestPressureOfKernels(t *testing.T) {
	for text, want := range map[string]*PSI{
		"": nil, // the kernel was built or started without it
		"some avg10=0.00 avg60=1.00 avg300=99.99 total=7\n":     {Some: Stall{Avg60: 1, Avg300: 99.99, Total: 7 * time.Microsecond}}, // cpu, before Linux 5.13
		"\nfull total=1\nsome avg10=x total=y avg11=5 alone\n":  {Full: Stall{Total: time.Microsecond}},
		"some avg10=1\nsome avg10=2\nfull avg10=3 avg300=4.5\n": {Some: Stall{Avg10: 2}, Full: Stall{Avg10: 3, Avg300: 4.5}},
	} {
		if diff := cmp.Diff(want, (&reader{}).pressure(file(t, text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestInterfacesWithoutLoopback(t *testing.T) {
	const counts = " 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n"
	want := func(name string) []Interface {
		return []Interface{{Name: name, RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}}
	}
	for text, all := range map[string][]Interface{
		"eth0:" + counts:                  want("eth0"),
		"  wlan0 :" + counts:              want("wlan0"),
		"lo:" + counts + "a:" + counts:    want("a"),
		"eth0: 1 2 3\n":                   nil,
		"Inter-|   Receive |  Transmit\n": nil,
	} {
		if diff := cmp.Diff(all, (&reader{}).interfaces(file(t, text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestDevicesOfBothHierarchies(t *testing.T) {
	for text, want := range map[string][]DeviceIO{
		"8:0 rbytes=1 wbytes=2 rios=3 wios=4\n259:1 rbytes=5\n": {{Major: 8, ReadBytes: 1, WriteBytes: 2, Reads: 3, Writes: 4}, {Major: 259, Minor: 1, ReadBytes: 5}},
		"8:0 cost.usage=7 rios=x\n":                             {{Major: 8}},
		"8:0\n\n8-0 rbytes=1\n":                                 nil,
	} {
		if diff := cmp.Diff(want, devicesOfUnified([]byte(text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"blkio.throttle.io_service_bytes_recursive": "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 4\n8:0 Total 3\nsda Read 9\nTotal 3\n",
		"blkio.throttle.io_serviced_recursive":      "259:1 Read 5\n8:0 Write 6\n",
	})
	if diff := cmp.Diff([]DeviceIO{{Major: 8, ReadBytes: 1, WriteBytes: 2, Writes: 6}, {Major: 259, Minor: 1, Reads: 5}}, blkio(&reader{}, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestAProcessOfACgroupIsFoundBelowIt(t *testing.T) {
	root := t.TempDir()
	deep := strings.Repeat("/d", maxNesting)
	write(t, root, map[string]string{
		"own/cgroup.procs": "7\n8\n", "own/below/cgroup.procs": "9\n",
		"below/cgroup.procs": "", "below/a/cgroup.procs": "", "below/b/cgroup.procs": "11\n", "below/file": "",
		"foreign/cgroup.procs":          "0\n", // it is in a PID namespace that cannot be seen
		"deep" + deep + "/cgroup.procs": "12\n", "deeper" + deep + "/d/cgroup.procs": "13\n",
	})
	for name, h := range map[string]Hierarchies{"v2": {Unified: root}, "v1": {Unified: "/none", Controllers: map[string]string{"memory": root}}} {
		for cgroup, want := range map[string]int{"/own": 7, "/below": 11, "/foreign": 0, "/deep": 12, "/deeper": 0, "/none": 0} {
			if pid := h.process(&reader{}, cgroup); pid != want {
				t.Errorf("%s: %s has process %d, want %d", name, cgroup, pid, want)
			}
		}
	}
}

func TestMountsOfControllers(t *testing.T) {
	var h Hierarchies
	for _, m := range []mountinfo.Info{
		{Mountpoint: "/sys/fs/cgroup/cpu,cpuacct", VFSOptions: "rw,cpu,cpuacct"},
		{Mountpoint: "/sys/fs/cgroup/memory", VFSOptions: "rw,memory"},
		{Mountpoint: "/mnt/again", VFSOptions: "rw,memory"},
		{Mountpoint: "/sys/fs/cgroup/systemd", VFSOptions: "rw,xattr,name=systemd"},
	} {
		h.add(&m)
	}
	want := map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/memory"}
	if diff := cmp.Diff(want, h.Controllers); diff != "" {
		t.Error(diff)
	}
}

func TestAWorkingSetIsNeverNegative(t *testing.T) {
	dir := t.TempDir() // the files are read one after the other: memory may be freed in between
	write(t, dir, map[string]string{
		"cpu.stat": "usage_usec 1\n", "memory.current": "100\n", "memory.stat": "inactive_file 200\n", "cpuacct.usage": "1\n",
		"memory.usage_in_bytes": "100\n", "memory.limit_in_bytes": "50\n",
	})
	for name, h := range map[string]Hierarchies{"v2": {Unified: dir}, "v1": {Controllers: map[string]string{"cpuacct": dir, "memory": dir}}} {
		write(t, dir, map[string]string{"memory.stat": "inactive_file 200\ntotal_inactive_file 200\n"})
		u, ok := h.read(&reader{}, "/", time.Time{})
		if !ok || u.Memory.WorkingSet != 0 || u.Memory.Usage != 100 {
			t.Errorf("%s: %+v", name, u.Memory)
		}
		if u.Swap != nil || u.IO.Devices != nil || u.CPU.PSI != nil {
			t.Errorf("%s: what the kernel does not count: %+v", name, u)
		}
	}
}

func TestLongFilesAreReadWhole(t *testing.T) {
	r, path := &reader{}, file(t, strings.Repeat("x", 20<<10)+"\na 5\n")
	var a uint64
	if r.counts(map[string]*uint64{"a": &a}, path); a != 5 {
		t.Errorf("the line after 20 KiB: %d", a)
	}
	r.release()
	if len(r.buf) == 0 {
		t.Error("a buffer of usual size is not reused")
	}
}
