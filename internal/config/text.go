package config

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const (
	// EnvPrefix is the prefix of environment variables that set keys of the configuration.
	EnvPrefix     = "MONOPOD_"
	envConfigFile = "MONOPOD_CONFIG"
	// envBundleDir is read by cmd/launcher only.
	envBundleDir = "MONOPOD_BUNDLE_DIR"
)

// Flags are the command line flags of the configuration.
type Flags struct {
	File string
	Set  *pflag.FlagSet
}

// AddFlags adds --config and a flag for each key.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{Set: set}
	set.StringVar(&f.File, "config", "", "configuration `file` (default "+DefaultFile+" if it exists)")
	for _, key := range Keys() {
		if name := key.Flag(); name != "" {
			set.VarPF(&textFlag{kind: key.Kind}, name, "", strings.ReplaceAll(key.doc, "`", "'")).DefValue = key.Default()
		}
	}
	return f
}

// textFlag keeps the text of a flag: it is parsed together with the other layers, so that all problems are reported at once.
type textFlag struct {
	text string
	kind Kind
}

func (f *textFlag) String() string     { return f.text }
func (f *textFlag) Set(s string) error { f.text = s; return nil }
func (f *textFlag) Type() string {
	if f.kind == KindStrings || f.kind == kindPaths {
		return "list"
	}
	return string(f.kind)
}

// textSetting is the value of a variable or flag.
type textSetting struct {
	text  string
	where string
}

// takeText parses the value of a variable or flag into the layer.
func (l *configLoader) takeText(lay layer, key Key, t textSetting) {
	value, problem := parseText(key, t.text)
	if problem != nil {
		problem.Where = t.where
		if problem.Key == "" { // else it is that of an entry
			problem.Key = key.Path
		}
		l.problems = append(l.problems, *problem)
		return
	}
	lay[key.Path] = setting{value: resolvePaths(key, value, l.env.WorkDir), where: t.where}
}

// parseText parses the text form of a value: lists are separated by commas, maps are written as in YAML.
func parseText(key Key, s string) (any, *Problem) {
	switch key.Kind {
	case KindStrings, kindPaths:
		out := []string{}
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out, nil
	case kindHeaders, kindLists, kindPrograms, kindTexts, kindSources, kindGraces, kindRules:
		var n yaml.Node
		if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) != 1 {
			hint := map[Kind]string{kindHeaders: `{Authorization: ["Bearer ..."]}`, kindLists: "{'group:ops': [metrics]}", kindPrograms: "{crun: /usr/bin/crun}", kindTexts: "{memory: 1Gi}", kindRules: "[{match: registry.example}]", kindGraces: "[{priority: 0, shutdownGracePeriodSeconds: 20}]", kindSources: "[{name: fleet, url: \"https://...\"}]"}[key.Kind]
			return nil, &Problem{Msg: "not a " + string(key.Kind), Hint: "write it as in YAML: " + hint}
		}
		return valueOf(key, n.Content[0])
	case kindInt:
		return parseInt(s)
	case kindBool:
		return parseBool(s)
	case kindNumber:
		return parseNumber(s)
	case kindDuration:
		return parseDuration(s)
	default:
		return s, nil
	}
}

func parseInt(s string) (any, *Problem) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil, &Problem{Msg: fmt.Sprintf("%q is not an integer", s)}
	}
	return n, nil
}

func parseBool(s string) (any, *Problem) {
	switch s {
	case "true", "True", "TRUE":
		return true, nil
	case "false", "False", "FALSE":
		return false, nil
	}
	return nil, &Problem{Msg: fmt.Sprintf("%q is neither true nor false", s)}
}

func parseNumber(s string) (any, *Problem) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, &Problem{Msg: fmt.Sprintf("%q is not a number", s)}
	}
	return f, nil
}

func parseDuration(s string) (any, *Problem) {
	d, err := time.ParseDuration(s)
	if err != nil {
		p := &Problem{Msg: fmt.Sprintf("%q is not a duration", s), Hint: "write a number and a unit, such as 20s or 5m"}
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			p.Hint = fmt.Sprintf("write the unit too, such as %ss", s)
		}
		return nil, p
	}
	return d, nil
}

// resolvePaths makes relative paths absolute: relative to the directory of their file, or for variables and flags to the working directory.
func resolvePaths(key Key, value any, base string) any {
	abs := func(p string) string {
		if p == "" {
			return p
		}
		if !filepath.IsAbs(p) {
			p = filepath.Join(base, p)
		}
		return filepath.Clean(p)
	}
	switch v := value.(type) {
	case string:
		if key.isPath() || key.Path == "ociRuntime" && strings.Contains(v, "/") {
			return abs(v)
		}
	case []string:
		if key.isPath() {
			for i := range v {
				v[i] = abs(v[i])
			}
		}
	case []any:
		if key.Kind == kindGraces {
			return value
		}
		if key.Kind == kindRules {
			resolveSourcePaths(imageRuleKeys(), v, base)
			return value
		}
		resolveSourcePaths(remoteSourceKeys(), v, base)
	case map[string]any:
		for name, program := range v {
			if s, ok := program.(string); ok && key.Kind == kindPrograms && strings.Contains(s, "/") {
				v[name] = abs(s)
			}
		}
	}
	return value
}

// EnvRequestTimeout is the default of --request-timeout.
const EnvRequestTimeout = EnvPrefix + "REQUEST_TIMEOUT"
