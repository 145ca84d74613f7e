package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/internal/version"
)

// No string of a manifest, an image or a server becomes a part of the path of a program, an option, or a pattern of files. The table
// testdata/programs.txt has a line for each place where it could: what is called there, and from where each argument comes.

// hostCalls are the functions that run a program, match patterns, or mount, by import path. A '*' at the end means all with this beginning.
func hostCalls() map[string][]string {
	const mount = "github.com/containerd/containerd/v2/core/mount"
	return map[string][]string{
		"os/exec": {"Command", "CommandContext", "LookPath"}, "os": {"StartProcess"}, "syscall": {"Exec", "ForkExec", "StartProcess", "Mount"},
		"golang.org/x/sys/unix": {"Exec", "Execveat", "Mount", "Fsconfig*", "Fsopen", "Fspick"},
		"path/filepath":         {"Glob", "Match"}, "path": {"Match"}, "io/fs": {"Glob"},
		mount: {"All", "WithTempMount", "WithReadonlyTempMount"}, "github.com/containernetworking/cni/libcni": {"NewCNIConfig*"},
		// They run programs that a kubeconfig or docker's configuration names.
		"k8s.io/client-go/tools/clientcmd": {"NewDefaultClientConfig", "BuildConfigFromFlags"}, "github.com/docker/cli/cli/config": {"Load*"},
		// Functions of this module that pass a program, arguments or options on.
		version.Module + "/runner/ctrd/trees": {"MountTmpfs"},
	}
}

// hostLiterals are the types whose values describe a program or a mount.
func hostLiterals() map[string][]string {
	return map[string][]string{
		"os/exec": {"Cmd"},
		"github.com/containerd/containerd/v2/core/mount":          {"Mount"},
		"github.com/containerd/containerd/v2/core/containers":     {"RuntimeInfo"},
		"github.com/containerd/containerd/api/types/runc/options": {"Options"},
		"github.com/containerd/go-runc":                           {"Runc"},
		"github.com/containerd/containerd/api/types":              {"Mount"},
		"github.com/opencontainers/runtime-spec/specs-go":         {"Mount", "Hook", "Hooks"},
		version.Module + "/runner/ctrd/network/xtables":           {"Chain", "Jump"},
	}
}

// passers are functions and methods, as they are called, that pass a program, its arguments or its input on within their package.
func passers() map[string][]string {
	return map[string][]string{
		"runner/ctrd/remote":          {"run", "c.run", "tool"},
		"runner/ctrd/network/xtables": {"run"},
		"runner/ctrd/sandbox":         {"r.runPause"},
		"internal/setup":              {"h.Systemctl", "Systemctl"},
	}
}

// programsTable is read by people, too: <file> <function> <calls>: <what it is>; <origin of each argument, and why it is no option, path or
// pattern>.
const programsTable = "testdata/programs.txt"

func TestProgramsPatternsAndMountsAreInTheTable(t *testing.T) {
	data, err := os.ReadFile(programsTable)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]bool{}
	for l := range strings.Lines(string(data)) {
		if strings.HasPrefix(l, "#") || strings.TrimSpace(l) == "" {
			continue
		}
		place, why, _ := strings.Cut(l, ": ")
		if what, origin, _ := strings.Cut(why, "; "); table[place] || len(what) < 5 || len(origin) < 5 {
			t.Errorf("%s: the line of %s occurs twice, or lacks one of: <what it runs>; <origin of its arguments>", programsTable, place)
		}
		table[place] = true
	}
	eachProductFile(t, func(file string, set *token.FileSet, f *ast.File) {
		for _, d := range f.Decls {
			calls := hostCallsIn(d, f, path.Dir(file))
			if len(calls) == 0 {
				continue
			}
			place := file + " " + declared(d) + " " + listOfCalls(calls)
			if !table[place] {
				t.Errorf("%s runs a program, matches a pattern or mounts: can a string of a manifest, an image or a server become a path or an option there? Add to %s:\n%s: ...; ...",
					set.Position(d.Pos()), programsTable, place)
			}
			delete(table, place)
		}
	})
	for place := range table {
		t.Errorf("%s: no such place any more: %s", programsTable, place)
	}
}

// TestPlacesThatRunProgramsAreFound checks the checker above.
func TestPlacesThatRunProgramsAreFound(t *testing.T) {
	for body, want := range map[string]string{
		`_ = exec.Command("a"); _ = exec.CommandContext(nil, "b")`:   "exec.Command,exec.CommandContext",
		`_ = &exec.Cmd{Path: "a"}`:                                   "exec.Cmd",
		`run := syscall.Exec; _ = run`:                               "syscall.Exec",
		`_, _ = filepath.Glob("a"); _, _ = filepath.Glob("b")`:       "filepath.Glob*2",
		`_ = u.Mount("", "", "", 0, "")`:                             "u.Mount",
		`_ = u.FsconfigSetString(0, "", "")`:                         "u.FsconfigSetString",
		`_ = []mount.Mount{{Type: "x"}}`:                             "mount.Mount",
		`m.Options = nil`:                                            "Options",
		`var c *exec.Cmd; var m mount.Mount; _ = filepath.Base("a")`: "",
	} {
		source := `package p
import ("os/exec"; "path/filepath"; "syscall"; u "golang.org/x/sys/unix"; "github.com/containerd/containerd/v2/core/mount")
func f() { ` + body + ` }`
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got := listOfCalls(hostCallsIn(f.Decls[1], f, "p")); got != want {
			t.Errorf("%s: found %q, want %q", body, got, want)
		}
	}
}

// listOfCalls returns what is called, with the number of places if there are several.
func listOfCalls(calls map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		if n := calls[name]; n > 1 {
			name += "*" + strconv.Itoa(n)
		}
		all = append(all, name)
	}
	return strings.Join(all, ",")
}

// declared returns the name of a function, with that of its receiver; "var" for other declarations.
func declared(d ast.Decl) string {
	fn, ok := d.(*ast.FuncDecl)
	switch {
	case !ok:
		return "var"
	case fn.Recv != nil:
		return receiver(fn.Recv.List[0].Type) + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// hostCallsIn counts the places in a declaration by what they call.
func hostCallsIn(d ast.Decl, f *ast.File, dir string) map[string]int {
	names := map[string]string{}
	for _, i := range f.Imports {
		to, _ := strconv.Unquote(i.Path.Value)
		name := strings.TrimSuffix(strings.TrimSuffix(path.Base(to), "-go"), ".v2")
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = to
	}
	counts := map[string]int{}
	count := func(e ast.Expr, from map[string][]string) {
		if s, ok := e.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && listedIn(from[names[x.Name]], s.Sel.Name) {
				counts[x.Name+"."+s.Sel.Name]++
			}
		}
	}
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			count(n, hostCalls())
		case *ast.CompositeLit:
			switch t := n.Type.(type) {
			case *ast.ArrayType:
				count(t.Elt, hostLiterals())
			default:
				count(t, hostLiterals())
			}
		case *ast.CallExpr:
			pkg, name := called(n)
			if pkg != "" {
				name = pkg + "." + name
			}
			if slices.Contains(passers()[dir], name) {
				counts[name]++
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if s, ok := left.(*ast.SelectorExpr); ok && s.Sel.Name == "Options" {
					counts["Options"]++
				}
			}
		}
		return true
	})
	return counts
}

func listedIn(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		prefix, all := strings.CutSuffix(n, "*")
		return n == name || all && strings.HasPrefix(name, prefix)
	})
}
