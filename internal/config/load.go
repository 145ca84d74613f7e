package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"monopod/internal/bundle"
	"monopod/internal/config/suggest"
	"monopod/internal/regular"
)

const (
	// DefaultFile is read unless --config or MONOPOD_CONFIG names another file.
	DefaultFile = "/etc/monopod/config.yaml"
	// layerDelim separates the levels of a key inside koanf. A dot would not do: header names may contain it.
	layerDelim = "/"
)

// Problem is one error in the configuration.
type Problem struct {
	// Where is "file:line", or names the variable or flag.
	Where string
	// Key is empty when the problem is not about one key.
	Key  string
	Msg  string
	Hint string
}

// Error prints the problem like a compiler message.
func (p Problem) Error() string {
	var b strings.Builder
	for _, part := range []string{p.Where, p.Key} {
		if part != "" {
			b.WriteString(part + ": ")
		}
	}
	b.WriteString(p.Msg)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Problems are all errors of a configuration.
type Problems []Problem

// Error prints one problem per line.
func (e Problems) Error() string { return strings.Join(e.Lines(), "\n") }

// Lines returns one line per problem.
func (e Problems) Lines() []string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = p.Error()
	}
	return lines
}

// Loaded is a valid configuration and where it came from.
type Loaded struct {
	Config
	// Sources names, for each key, the layers that its value comes from.
	Sources map[string]string
	// Files are the files that were read, in order.
	Files []string
	// Warnings are about ignored files and variables.
	Warnings []string
}

// setting is the value one layer gives to a key.
type setting struct {
	value any
	where string
	// reset means that the layer sets the key to its built-in default (a null in a file).
	reset bool
}

// layer holds the values of one file, the environment or the flags, by key.
type layer map[string]setting

// configLoader collects layers and problems.
type configLoader struct {
	env      Environment
	keys     []Key
	layers   []layer
	problems Problems
	files    []string
	warnings []string
}

// Load merges the built-in defaults, the configuration file with its drop-ins, the environment and
// the flags. The error is a Problems with everything that is wrong.
func Load(flags *Flags, env Environment) (*Loaded, error) {
	l := &configLoader{env: env, keys: Keys()}
	l.readFiles(flags.File)
	l.readEnviron()
	l.readFlags(flags.Set)
	return l.finish()
}

// readFiles reads the named file, or the default one if it exists, then the drop-ins beside it.
func (l *configLoader) readFiles(named string) {
	file, where := DefaultFile, ""
	for _, v := range l.env.Environ {
		if val, ok := strings.CutPrefix(v, envConfigFile+"="); ok && val != "" {
			file, where = val, envConfigFile
		}
	}
	if named != "" {
		file, where = named, "--config"
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(l.env.WorkDir, file)
	}
	switch _, err := os.Stat(file); {
	case err == nil:
		l.take(file, os.ReadFile)
	case errors.Is(err, fs.ErrNotExist) && where == "":
	default:
		l.problems = append(l.problems, Problem{Where: where, Msg: err.Error()})
	}
	l.readDropIns(filepath.Join(filepath.Dir(file), "config.d"))
}

func (l *configLoader) readDropIns(dir string) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.problems = append(l.problems, Problem{Where: dir, Msg: err.Error()})
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case filepath.Ext(e.Name()) != ".yaml":
			l.warnings = append(l.warnings, path+": not read, only *.yaml files are")
		default: // nobody has named it: what blocks is not waited for
			l.take(path, func(path string) ([]byte, error) { return regular.ReadFile(path, maxConfigSize) })
		}
	}
}

// maxConfigSize is far larger than any real configuration.
const maxConfigSize = 4 << 20

// take adds the layer that read returns for a file.
func (l *configLoader) take(path string, read func(string) ([]byte, error)) {
	b, err := read(path)
	if err != nil {
		l.problems = append(l.problems, Problem{Where: path, Msg: err.Error()})
		return
	}
	l.files = append(l.files, path)
	lay, problems := parseConfigFile(path, b, l.keys)
	l.layers = append(l.layers, lay)
	l.problems = append(l.problems, problems...)
}

// finish merges the layers, decodes and checks the result.
func (l *configLoader) finish() (*Loaded, error) {
	out := &Loaded{Sources: make(map[string]string, len(l.keys)), Files: l.files, Warnings: l.warnings}
	k := koanf.New(layerDelim)
	defaults := make(layer, len(l.keys))
	for _, key := range l.keys {
		defaults[key.Path] = setting{value: key.value()}
		out.Sources[key.Path] = "default"
		if key.derived != "" {
			out.Sources[key.Path] = "default: " + strings.ReplaceAll(key.derived, "`", "")
		}
	}
	for _, lay := range append([]layer{defaults}, l.layers...) {
		if err := merge(k, lay, defaults); err != nil {
			return nil, fmt.Errorf("merge configuration: %w", err)
		}
		l.trace(lay, out.Sources)
	}
	dc := &mapstructure.DecoderConfig{ErrorUnused: true}
	if err := k.UnmarshalWithConf("", &out.Config, koanf.UnmarshalConf{DecoderConfig: dc}); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	if err := out.derive(l.env.Hostname); err != nil {
		l.problems = append(l.problems, Problem{Key: "nodeName", Msg: "host name: " + err.Error(), Hint: "set nodeName"})
	}
	l.problems = append(l.problems, checkConfig(&out.Config, out.Sources)...)
	if len(l.problems) > 0 {
		return nil, l.problems
	}
	return out, nil
}

func merge(k *koanf.Koanf, lay, defaults layer) error {
	if len(lay) == 0 {
		return nil // what is there would be copied all the same
	}
	flat := make(map[string]any, len(lay))
	for path, s := range lay {
		name := strings.ReplaceAll(path, ".", layerDelim)
		if s.reset {
			k.Delete(name)
			s.value = defaults[path].value
		}
		flat[name] = s.value
	}
	return k.Load(confmap.Provider(flat, layerDelim), nil)
}

// trace records which layer each value comes from. Maps of several layers are merged, so all of these layers are recorded.
func (l *configLoader) trace(lay layer, sources map[string]string) {
	for _, key := range l.keys {
		s, ok := lay[key.Path]
		if !ok || s.where == "" {
			continue
		}
		if key.isMap() && !s.reset && !strings.HasPrefix(sources[key.Path], "default") {
			sources[key.Path] += ", " + s.where
			continue
		}
		sources[key.Path] = s.where
	}
}

// readFlags takes the flags that were given on the command line.
func (l *configLoader) readFlags(set *pflag.FlagSet) {
	lay := layer{}
	for _, key := range l.keys {
		name := key.Flag()
		if name == "" || set == nil || !set.Changed(name) {
			continue
		}
		l.takeText(lay, key, textSetting{text: set.Lookup(name).Value.String(), where: "--" + name})
	}
	l.layers = append(l.layers, lay)
}

// readEnviron reads the MONOPOD_* variables and ignores empty ones. An unknown one that looks like a misspelled key is an error; others may
// belong to other programs and only cause a warning.
func (l *configLoader) readEnviron() {
	lay := layer{}
	environ := slices.DeleteFunc(slices.Clone(l.env.Environ), func(v string) bool { return !strings.HasPrefix(v, EnvPrefix) })
	slices.Sort(environ)
	for _, v := range environ {
		name, text, _ := strings.Cut(v, "=")
		if text == "" || name == envConfigFile || name == envBundleDir || name == EnvRequestTimeout || name == bundle.LauncherVariable {
			continue
		}
		if i := slices.IndexFunc(l.keys, func(k Key) bool { return k.Env() == name }); i >= 0 {
			l.takeText(lay, l.keys[i], textSetting{text: text, where: name})
		} else if near := suggest.Nearest(strings.TrimPrefix(name, EnvPrefix), l.variables()); near != "" {
			l.problems = append(l.problems, Problem{Where: "environment", Key: name, Msg: "unknown variable", Hint: "did you mean " + EnvPrefix + near + "?"})
		} else {
			l.warnings = append(l.warnings, "environment: "+name+": unknown variable, not used")
		}
	}
	l.layers = append(l.layers, lay)
}

// variables lists the known variables, without their prefix.
func (l *configLoader) variables() []string {
	all := []string{envConfigFile, envBundleDir, EnvRequestTimeout}
	for _, key := range l.keys {
		all = append(all, key.Env())
	}
	for i, name := range all {
		all[i] = strings.TrimPrefix(name, EnvPrefix)
	}
	return all
}
