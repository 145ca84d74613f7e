package xtables

import (
	"net/netip"
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

// called returns a program that records its arguments and input, and answers with answer for arguments that contain match.
func called(t *testing.T, match, answer string) (path string, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "ipt")
	script := "#!/bin/sh\ncd \"${0%/*}\"; echo \"${0##*/} $*\" >>calls; case \"$*\" in *'" + match + "'*) " + answer + ";; esac\n"
	write(t, path, script, 0o700)
	write(t, path+"-restore", "#!/bin/sh\ncd \"${0%/*}\"; echo \"${0##*/} $*\" >>calls; cat >>calls\n", 0o700)
	return path, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
}

func TestRulesArePresentIfEachChainAndEachJumpIs(t *testing.T) {
	listed := "echo '-N OURS'; echo '-A OURS -i br -j ACCEPT'"
	for name, tt := range map[string]struct {
		match, answer string
		present, made bool
	}{
		"all":                         {"-S OURS", "case \"$*\" in *OURS-2) ;; *) " + listed + ";; esac", true, true},
		"a chain without its rule":    {"-S OURS", "echo '-N OURS'", false, true},
		"a chain is missing":          {"-S OURS-2", "exit 1", false, false},
		"a jump is missing":           {"-C INPUT", "exit 1", false, false},
		"the tool does not work here": {"-w", "exit 3", false, false},
	} {
		s := set()
		s.Tool, _ = called(t, tt.match, tt.answer)
		if got := s.Present(t.Context()); got != tt.present {
			t.Errorf("%s: present %t", name, got)
		}
		if got := s.Made(t.Context()); got != tt.made {
			t.Errorf("%s: made %t", name, got)
		}
	}
}

func TestChainsAreRefilledInOneTransaction(t *testing.T) {
	s := set()
	s.Chains = append(s.Chains, Chain{Table: "nat", Name: "MASQ", Rules: []string{"-j MASQUERADE"}})
	var calls func() string
	s.Tool, calls = called(t, "nothing", "true")
	if err := s.Refill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "ipt-restore -w 5 --noflush\n*filter\n" + content + "COMMIT\n*nat\n:MASQ - [0:0]\n-A MASQ -j MASQUERADE\nCOMMIT\n"
	if got := calls(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWhichToolWorksHere(t *testing.T) {
	for version, legacy := range map[string]bool{"iptables v1.8.9 (nf_tables)": false, "iptables v1.8.9 (legacy)": true, "iptables v1.4.21": true} {
		tool, _ := called(t, "--version", "echo '"+version+"'")
		if got := Legacy(t.Context(), tool); got != legacy {
			t.Errorf("%s: legacy %t", version, got)
		}
	}
	broken, _ := called(t, "", "echo 'no kernel support'; exit 3")
	if Legacy(t.Context(), broken) {
		t.Error("a tool that does not work is called a legacy one")
	}
	if err := Usable(t.Context(), broken, "filter"); err == nil || !strings.Contains(err.Error(), "no kernel support") {
		t.Errorf("a tool that does not work: %v", err)
	}
	works, calls := called(t, "nothing", "true")
	if err := Usable(t.Context(), works, "nat"); err != nil || calls() != "ipt -w 5 -t nat -S\n" {
		t.Errorf("%v: %s", err, calls())
	}
	for addr, want := range map[string]string{"10.0.0.1": "iptables", "fd00::1": "ip6tables"} {
		if got := Tool(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %s", addr, got)
		}
	}
}
