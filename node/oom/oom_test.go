package oom

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
)

const id = "df4c9812a31b5f5855cef9e3dbc495c942d12750564d4a22b5246375ba105dc0"

func TestKillsAreReadFromTheMessagesOfTheKernel(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Kill
		container  string
	}{
		{
			"in a container", `4,1,5,-;dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
6,2,5,-;CPU: 0 PID: 12 Comm: dd
6,3,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=` + id + `,mems_allowed=0,oom_memcg=/monopod/besteffort/pod1,task_memcg=/monopod/besteffort/pod1/` + id + `,task=a,b,pid=77,uid=0
3,4,5,-;Memory cgroup out of memory: Killed process 77 (a,b) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:4kB oom_score_adj:1000`,
			Kill{Process: "a,b", PID: 77, Limit: "/monopod/besteffort/pod1", Victim: "/monopod/besteffort/pod1/" + id},
			id,
		},
		{
			"in a scope of systemd, with a name that hides its end", `6,3,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/monopod.slice/p.slice/monopod-` + id + `.scope,task_memcg=/monopod.slice/p.slice/monopod-` + id + `.scope/inner,task=x) (y,pid=8,uid=0
3,4,5,-;Memory cgroup out of memory: Killed process 8 (x) (y) total-vm:1kB, anon-rss:2kB`,
			Kill{Process: "x) (y", PID: 8, Limit: "/monopod.slice/p.slice/monopod-" + id + ".scope", Victim: "/monopod.slice/p.slice/monopod-" + id + ".scope/inner"},
			id,
		},
		{
			"of the machine", `6,3,5,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/x.service,task=mysqld,pid=9,uid=5
3,4,5,-;Out of memory: Killed process 9 (mysqld) total-vm:1kB, anon-rss:2kB`,
			Kill{Process: "mysqld", PID: 9, System: true, Victim: "/system.slice/x.service"},
			"",
		},
		{"by a kernel that says less", "3,4,5,-;Out of memory: Killed process 9 (sh), UID 0, total-vm:1kB", Kill{Process: "sh", PID: 9, System: true}, ""},
		{
			"by a kernel before 5.0", `6,2,5,-;Task in /kubepods/pod1/` + id + ` killed as a result of limit of /kubepods/pod1
3,3,5,-;Memory cgroup out of memory: Kill process 9 (sh) score 1 or sacrifice child
3,4,5,-;Killed process 9 (sh) total-vm:1kB`, Kill{Process: "sh", PID: 9, Limit: "/kubepods/pod1", Victim: "/kubepods/pod1/" + id}, id,
		},
		{"of which it does not say whose it was", "3,4,5,-;Memory cgroup out of memory: Killed process 9 (sh) total-vm:1kB", Kill{Process: "sh", PID: 9}, ""},
		{
			"of which it said that of another", `6,3,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/a,task=a,pid=77,uid=0
3,4,5,-;Memory cgroup out of memory: Killed process 9 (sh) total-vm:1kB`, Kill{Process: "sh", PID: 9}, "",
		},
	} {
		p := Parser{}
		var got []Kill
		for record := range strings.Lines(tt.text) {
			if k, ok := p.Record(record); ok {
				got = append(got, k)
			}
		}
		if len(got) != 1 || got[0] != tt.want || got[0].Container() != tt.container {
			t.Errorf("%s: %+v, container %q", tt.name, got, tt.container)
		}
	}
}

func TestAGroupIsKilledWithItsFirst(t *testing.T) {
	const text = `6,3,5,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/m/pod1/` + id + `,task_memcg=/m/pod1/` + id + `,task=tail,pid=77,uid=0
3,4,6,-;Memory cgroup out of memory: Killed process 77 (tail) total-vm:1kB
6,5,7,-;Tasks in /m/pod1/` + id + ` are going to be killed due to memory.oom.group set
3,6,8,-;Memory cgroup out of memory: Killed process 76 (sh) total-vm:1kB
3,7,9,-;Memory cgroup out of memory: Killed process 77 (tail) total-vm:1kB
3,8,2000000,-;Memory cgroup out of memory: Killed process 99 (x) total-vm:1kB`
	const dir = "/m/pod1/" + id
	want := []Kill{
		{Process: "tail", PID: 77, Limit: dir, Victim: dir},
		{Process: "sh", PID: 76, Limit: dir, Victim: dir, Group: true},
		{Process: "tail", PID: 77, Limit: dir, Victim: dir, Group: true},
		{Process: "x", PID: 99},
	}
	p := Parser{}
	var got []Kill
	for record := range strings.Lines(text) {
		if k, ok := p.Record(record); ok {
			got = append(got, k)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestWhosePodItWas(t *testing.T) {
	for victim, want := range map[string]bool{
		"/monopod/besteffort/poda-b/" + id: true, "/monopod.slice/monopod-besteffort.slice/monopod-besteffort-poda_b.slice/monopod-x.scope": true,
		"/monopod/poda-b": true, "/monopod/poda-bc/x": false, "/monopod/xpoda-b": false, "": false, "/": false,
	} {
		if got := (Kill{Victim: victim}).In("a-b"); got != want {
			t.Errorf("%s: %v", victim, got)
		}
	}
	if (Kill{Victim: "/m/pod"}).In("") {
		t.Error("a pod without an id has no cgroup")
	}
}

func TestOtherMessagesAreNoKills(t *testing.T) {
	for _, record := range []string{"", "no record", "6,1,2,-;usb 1-1: new device", "3,4,5,-;Killed process x (y)", "3,4,5,-;Killed process 5", "6,1,2,-;oom-kill:", "6,1,2,-;Task in", "6,1,2,-;Tasks in /a", "x;Tasks in /a are going to be killed due to memory.oom.group set"} {
		if k, ok := (&Parser{}).Record(record); ok {
			t.Errorf("%q: %+v", record, k)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("6,3,5,-;oom-kill:oom_memcg=/a,task_memcg=/a/b,task=x", "3,4,5,-;Killed process 9 (sh) total-vm:1kB")
	f.Fuzz(func(t *testing.T, a, b string) {
		p := Parser{}
		p.Record(a)
		if k, ok := p.Record(b); ok {
			k.Container()
			k.In("1")
		}
	})
}

func TestTheWatchEndsAndFailsWithoutMessages(t *testing.T) {
	if err := Watch(t.Context(), t.TempDir()+"/none", nil); err == nil {
		t.Error("there is no such file")
	}
	if f, err := os.Open("/dev/kmsg"); err != nil {
		t.Skip("the messages of this kernel cannot be read:", err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Watch(ctx, "/dev/kmsg", func(Kill) {}) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
