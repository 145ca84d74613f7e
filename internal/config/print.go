package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"monopod/watcher/fetch"
)

// secretValue stands for the value of a header.
const secretValue = "(not shown)"

// values returns the effective values by key, as they are written in a file; header values are replaced.
func (c *Config) values() map[string]any {
	out := map[string]any{}
	collectValues(reflect.ValueOf(*c), "", out)
	hidden := map[string][]string{}
	for name, list := range c.StaticPodURLHeader {
		for range list {
			hidden[name] = append(hidden[name], secretValue)
		}
	}
	out["staticPodURLHeader"] = hidden
	out["staticPodURL"] = fetch.RedactURL(c.StaticPodURL)
	out["sources"] = c.printedSources()
	return out
}

// DurationText prints 5m0s as 5m.
func DurationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func collectValues(v reflect.Value, prefix string, out map[string]any) {
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous { // its keys are ours
			collectValues(v.Field(i), prefix, out)
			continue
		}
		path := prefix + v.Type().Field(i).Tag.Get("koanf")
		switch f := v.Field(i).Interface().(type) {
		case time.Duration:
			out[path] = DurationText(f)
		case []string:
			out[path] = append([]string{}, f...)
		case []RemoteSource: // values fills it in
		case []ImageRule:
			out[path] = append([]ImageRule{}, f...)
		case []ShutdownGrace:
			list := []map[string]int64{}
			for _, g := range f {
				list = append(list, map[string]int64{"priority": g.Priority, "shutdownGracePeriodSeconds": g.Seconds})
			}
			out[path] = list
		case map[string][]string, map[string]string, string, int, int64, bool, float64:
			out[path] = f
		default:
			collectValues(v.Field(i), path+".", out)
		}
	}
}

// YAML prints the configuration as a configuration file, with a comment at each key that says where its
// value comes from.
func (c *Loaded) YAML() (string, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	values := c.values()
	for _, key := range Keys() {
		parent, name := root, key.Path
		for {
			section, rest, nested := strings.Cut(name, ".")
			if !nested {
				break
			}
			parent, name = sectionNode(parent, section), rest
		}
		val := &yaml.Node{}
		if err := val.Encode(values[key.Path]); err != nil {
			return "", fmt.Errorf("print %s: %w", key.Path, err)
		}
		line := &yaml.Node{Kind: yaml.ScalarNode, Value: name}
		if val.Kind == yaml.ScalarNode || len(val.Content) == 0 {
			val.LineComment = c.Sources[key.Path]
		} else {
			line.HeadComment = c.Sources[key.Path]
		}
		parent.Content = append(parent.Content, line, val)
	}
	b, err := yaml.Marshal(root)
	return string(b), err
}

func sectionNode(root *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == name {
			return root.Content[i+1]
		}
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, n)
	return n
}

// configJSON is the form of `monopod config -o json` and of GET /v1/config.
type configJSON struct {
	// Config holds the values by key, nested as in a file.
	Config map[string]any `json:"config"`
	// Sources says by full key where each value comes from.
	Sources map[string]string `json:"sources"`
	Files   []string          `json:"files"`
}

// JSON returns the configuration with its sources.
func (c *Loaded) JSON() ([]byte, error) {
	files := append([]string{}, c.Files...)
	return json.MarshalIndent(configJSON{Config: c.Nested(), Sources: c.Sources, Files: files}, "", "  ")
}

// Nested returns the values by key, nested as in a file.
func (c *Loaded) Nested() map[string]any {
	root := map[string]any{}
	for path, v := range c.values() {
		m := root
		for {
			section, rest, ok := strings.Cut(path, ".")
			if !ok {
				break
			}
			inner, _ := m[section].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
				m[section] = inner
			}
			m, path = inner, rest
		}
		m[path] = v
	}
	return root
}

const configDocsHead = `# Configuration

<!-- Made by ` + "`monopod config --docs`" + `; a test compares. -->

Nothing needs to be configured. Values come from, each overriding those before:

1. the built-in defaults;
2. ` + "`/etc/monopod/config.yaml`" + `, or the file named by ` + "`--config`" + ` or ` + "`MONOPOD_CONFIG`" + `, which must exist then;
3. the ` + "`*.yaml`" + ` files of the directory ` + "`config.d`" + ` beside that file, in the order of their names;
4. environment variables;
5. flags of the command.

` + "`monopod config`" + ` prints the result and where each value comes from.

- A later file replaces single values and whole lists; maps are merged. A key without a value (` + "`key:`" + ` or ` + "`key: null`" + `) means the built-in default again.
- Relative paths in a file begin at the file's directory, those in variables and flags at the working directory.
- Lists in variables and flags are separated by commas: ` + "`MONOPOD_CLUSTER_DNS=10.0.0.2,10.0.0.3`" + `. Durations are written as ` + "`20s`" + ` or ` + "`5m`" + `.
- An empty variable counts as not set. Header values can be given in files and in the environment only: a command line is readable by every user.
- Unknown keys, wrong types and values that cannot work are refused, all at once, with file and line. Nothing is started then. An unknown ` + "`MONOPOD_*`" + `
  variable is refused when it looks like a misspelled one, else only mentioned in the log.
- Where the kubelet has the same setting, the key is that of a KubeletConfiguration. A KubeletConfiguration file itself is refused (` + "`apiVersion`" + `, ` + "`kind`" + ` and the
  keys monopod does not have), so that no setting is lost unnoticed.
- ` + "`MONOPOD_BUNDLE_DIR`" + ` is for ` + "`monopod-bundle`" + `: where it unpacks its programs ([why](adr/0006-launcher.md)). It is no key, since it counts before the configuration is read.
- The configuration is read once, at start. Restarting monopod leaves the pods running.

## Keys
`

// Docs returns the content of docs/config.md.
func Docs() string {
	var b strings.Builder
	b.WriteString(configDocsHead)
	for _, key := range Keys() {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s\n\n", key.Path, key.doc)
		fmt.Fprintf(&b, "%s; default: %s", strings.ToUpper(string(key.Kind[:1]))+string(key.Kind[1:]), key.Default())
		fmt.Fprintf(&b, "; variable `%s`", key.Env())
		if f := key.Flag(); f != "" {
			fmt.Fprintf(&b, "; flag `--%s`", f)
		}
		b.WriteString("\n")
		switch key.Kind {
		case kindSources:
			b.WriteString(entryDocs(remoteSourceKeys()))
		case kindRules:
			b.WriteString(entryDocs(imageRuleKeys()))
		case kindGraces:
			b.WriteString(entryDocs(shutdownGraceKeys()))
		}
	}
	return b.String()
}

// entryDocs describes the keys of an entry of a list.
func entryDocs(keys []Key) string {
	var b strings.Builder
	b.WriteString("\n| key | | default |\n|---|---|---|\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key.Path, key.doc, key.Default())
	}
	return b.String()
}

// Doc returns the description of the key, in Markdown.
func (k Key) Doc() string { return k.doc }

// Default returns the default as docs/config.md shows it.
func (k Key) Default() string {
	if k.derived != "" {
		return k.derived
	}
	switch v := k.value().(type) {
	case time.Duration:
		return "`" + DurationText(v) + "`"
	case int64:
		return fmt.Sprintf("`%d`", v)
	case bool, float64:
		return fmt.Sprintf("`%v`", v)
	case string:
		if v != "" {
			return "`" + v + "`"
		}
	case []string:
		if len(v) > 0 {
			return "`[" + strings.Join(v, ", ") + "]`"
		}
	}
	return "empty"
}
