package xtables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func set() Set {
	return Set{
		Tool:   "iptables",
		Chains: []Chain{{Table: "filter", Name: "OURS", Rules: []string{"-i br -j ACCEPT"}}, {Table: "filter", Name: "OURS-2"}},
		Jumps: []Jump{
			{Table: "filter", From: "FORWARD", To: "OURS", At: First},
			{Table: "filter", From: "INPUT", To: "OURS-2", At: Last, Match: []string{"-m", "addrtype", "--dst-type", "LOCAL"}},
		},
	}
}

const content = ":OURS - [0:0]\n-A OURS -i br -j ACCEPT\n:OURS-2 - [0:0]\n"

func TestEachJumpIsPlacedOnce(t *testing.T) {
	const jump, local = "-A FORWARD -j OURS\n", "-A INPUT -m addrtype --dst-type LOCAL -j OURS-2\n"
	for name, c := range map[string]struct{ now, want string }{
		"nothing is there":                {"-P INPUT ACCEPT\n", content + "-I FORWARD -j OURS\n" + local},
		"all is there":                    {"-N OURS\n-A FORWARD -j OTHER\n" + jump + local, content},
		"one is there twice":              {jump + jump + local, content + "-D FORWARD -j OURS\n-D FORWARD -j OURS\n-I FORWARD -j OURS\n"},
		"an earlier version had a match":  {jump + "-A INPUT -s 10.0.0.0/8 -j OURS-2\n", content + "-D INPUT -s 10.0.0.0/8 -j OURS-2\n" + local},
		"another's chain has such a name": {jump + local + "-A FORWARD -j OURS-3\n-A INPUT -j NOT-OURS\n", content},
	} {
		if got := set().placed("filter", parse(c.now)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if got := set().placed("nat", listing{}); got != "" {
		t.Errorf("in another table: %q", got)
	}
}

func TestAllThatLeadsToAChainIsRemovedWithIt(t *testing.T) {
	for name, c := range map[string]struct{ now, want string }{
		"nothing is there":     {"-P INPUT ACCEPT\n-N OTHER\n-A INPUT -j OTHER\n", ""},
		"only the chain":       {"-N OURS\n-A OURS -i br -j ACCEPT\n", "-F OURS\n-X OURS\n"},
		"several jumps":        {"-N OURS\n-A FORWARD -j OURS\n-A FORWARD -i eth0 -j OURS\n-A OTHER -g OURS\n-A FORWARD -j OURS\n", "-F OURS\n-D FORWARD -j OURS\n-D FORWARD -i eth0 -j OURS\n-D OTHER -g OURS\n-D FORWARD -j OURS\n-X OURS\n"},
		"from one to another":  {"-N OURS\n-N OURS-2\n-A OURS -j OURS-2\n", "-F OURS\n-F OURS-2\n-X OURS\n-X OURS-2\n"},
		"text of a comment":    {"-N OURS\n-A FORWARD -m comment --comment \"as -j OURS\" -j DROP\n", "-F OURS\n-X OURS\n"},
		"a comment is kept so": {"-N OURS\n-A FORWARD -m comment --comment \"two words\" -j OURS\n", "-F OURS\n-D FORWARD -m comment --comment \"two words\" -j OURS\n-X OURS\n"},
	} {
		if got := set().removed("filter", parse(c.now)); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

// tool is a program that lists the files 1, 2, 3... one after the other, the last again and again, and whose restore
// works when there is a file of that name and "+".
func tool(t *testing.T, listings ...string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for i, l := range listings {
		name := filepath.Join(dir, string(rune('1'+i)))
		l, works := strings.CutPrefix(l, "+")
		if works {
			name += "+"
		}
		write(t, name, l, 0o600)
	}
	path = filepath.Join(dir, "ipt")
	write(t, path, `#!/bin/sh
cd "${0%/*}"; n=$(cat at 2>/dev/null || echo 0); n=$((n+1))
[ -e $n ] || [ -e $n+ ] || n=$((n-1))
echo $n >at; cat $n $n+ 2>/dev/null; true
`, 0o700)
	write(t, path+"-restore", `#!/bin/sh
cd "${0%/*}"; echo "#$(cat at)" >>restored; cat >>restored; [ -e "$(cat at)+" ] || { echo busy; exit 4; }
`, 0o700)
	return path
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestAChangeThatOthersInterruptIsPlannedAgain(t *testing.T) {
	s := set()
	const one, two = "-N OURS\n-A FORWARD -j OURS\n", "-N OURS\n-A FORWARD -j OURS\n-A FORWARD -j OURS\n"
	s.Tool = tool(t, one, "+"+two)
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(filepath.Dir(s.Tool), "restored"))
	want := "#1\n*filter\n-F OURS\n-D FORWARD -j OURS\n-X OURS\nCOMMIT\n#2\n*filter\n-F OURS\n-D FORWARD -j OURS\n-D FORWARD -j OURS\n-X OURS\nCOMMIT\n"
	if err != nil || string(got) != want {
		t.Errorf("%v: %s", err, got)
	}
}

func TestAChangeThatFailsForItselfIsNotTriedAgain(t *testing.T) {
	s := set()
	s.Tool = tool(t, "-N OURS\n")
	if err := s.Remove(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
		t.Errorf("%v", err)
	}
	got, err := os.ReadFile(filepath.Join(filepath.Dir(s.Tool), "restored"))
	if err != nil || strings.Count(string(got), "#") != 1 {
		t.Errorf("%v: %s", err, got)
	}
	s.Tool = tool(t, "-N OURS\n", "-P INPUT ACCEPT\n")
	if err := s.Remove(t.Context()); err != nil {
		t.Errorf("another removed it meanwhile: %v", err)
	}
}
