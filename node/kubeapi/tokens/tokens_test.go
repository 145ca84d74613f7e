package tokens_test

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod/internal/boottime"
	"monopod/node/kubeapi/tokens"
)

// machine is a directory with a key, and a clock.
type machine struct {
	dir string
	now boottime.Moment
}

func newMachine(t *testing.T) *machine {
	return &machine{filepath.Join(t.TempDir(), "api"), boottime.Moment{Boot: "b", Since: time.Hour, Wall: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}}
}

// start returns the issuer as a new process has it.
func (m *machine) start() *tokens.Issuer {
	return tokens.New(tokens.Config{Dir: m.dir, Now: func() boottime.Moment { return m.now }})
}

func of(name string) tokens.Subject {
	return tokens.Subject{Namespace: "ns", ServiceAccount: tokens.Object{Name: name, UID: "a1"}, Pod: &tokens.Object{Name: "p", UID: "p1"}}
}

func sign(t *testing.T, i *tokens.Issuer, life time.Duration) (string, time.Time) {
	t.Helper()
	token, end, err := i.Sign(of("sa"), []string{"x", "y"}, life)
	if err != nil {
		t.Fatal(err)
	}
	return token, end
}

func TestATokenSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	i := m.start()
	token, end := sign(t, i, time.Hour)
	if want := m.now.Wall.Add(time.Hour); !end.Equal(want) {
		t.Errorf("expires %s, want %s", end, want)
	}
	got, err := m.start().Verify(token)
	if err != nil || got.Subject.ServiceAccount != (tokens.Object{Name: "sa", UID: "a1"}) || got.Subject.Namespace != "ns" || *got.Subject.Pod != (tokens.Object{Name: "p", UID: "p1"}) || got.ID == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if c := got.Common([]string{"z", "y", "x"}); !slices.Equal(c, []string{"y", "x"}) {
		t.Errorf("audiences %v", c)
	}
	body, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	for _, want := range []string{`"sub":"system:serviceaccount:ns:sa"`, `"iss":"https://kubernetes.default.svc"`, `"pod":{"name":"p","uid":"p1"}`} {
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s has no %s", body, want)
		}
	}
	other, _ := sign(t, i, time.Hour)
	if other == token {
		t.Error("two tokens are the same")
	}
	info, err := os.Stat(filepath.Join(m.dir, "tokens.pem"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestTheLifeOfATokenFollowsAClockThatCannotBeSet: machines start with a wrong clock, which is set later.
func TestTheLifeOfATokenFollowsAClockThatCannotBeSet(t *testing.T) {
	t.Parallel()
	const boot, other = "b", "c"
	for name, c := range map[string]struct {
		life  time.Duration
		boot  string
		awake time.Duration
		wall  time.Duration
		ok    bool
	}{
		"at once":                             {time.Hour, boot, 0, 0, true},
		"nearly over":                         {time.Hour, boot, time.Hour - time.Second, time.Hour - time.Second, true},
		"over":                                {time.Hour, boot, time.Hour, time.Hour, false},
		"the clock was set 50 years ahead":    {time.Hour, boot, time.Minute, 50 * 365 * 24 * time.Hour, true},
		"the clock was set back":              {time.Hour, boot, time.Minute, -50 * 365 * 24 * time.Hour, true},
		"set back, and over":                  {time.Hour, boot, 2 * time.Hour, -time.Hour, false},
		"after a boot":                        {time.Hour, other, 0, time.Minute, true},
		"after a boot, over":                  {time.Hour, other, 0, time.Hour, false},
		"after a boot, from a wrong clock":    {time.Hour, other, 0, -time.Hour, false},
		"no token is shorter than 10 minutes": {time.Second, boot, 9 * time.Minute, 0, true},
		"no token is longer than a day":       {365 * 24 * time.Hour, boot, 24 * time.Hour, 0, false},
	} {
		m := newMachine(t)
		token, _ := sign(t, m.start(), c.life)
		m.now.Boot, m.now.Since, m.now.Wall = c.boot, m.now.Since+c.awake, m.now.Wall.Add(c.wall)
		if _, err := m.start().Verify(token); (err == nil) != c.ok || !c.ok && !errors.Is(err, tokens.ErrExpired) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForeignTokensAreUnknown(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	i := m.start()
	token, _ := sign(t, i, time.Hour)
	words := strings.Split(token, ".")
	foreign, _ := sign(t, newMachine(t).start(), time.Hour)
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, text := range map[string]string{
		"empty": "", "a word": "secret", "three words": "a.b.c", "foreign": foreign, "without signature": words[0] + "." + words[1] + ".",
		"no algorithm": b64(`{"alg":"none"}`) + "." + words[1] + ".", "another body": words[0] + "." + b64(`{"sub":"root"}`) + "." + words[2],
		"long": token + strings.Repeat("A", 1<<20), "short signature": token[:len(token)-4], "hmac": b64(`{"alg":"HS256"}`) + "." + words[1] + "." + words[2],
	} {
		if got, err := i.Verify(text); !errors.Is(err, tokens.ErrUnknown) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestADamagedKeyIsMadeAnew(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "rubbish", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", strings.Repeat("x", 1<<20)} {
		m := newMachine(t)
		before, _ := sign(t, m.start(), time.Hour)
		if err := os.WriteFile(filepath.Join(m.dir, "tokens.pem"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		i := m.start()
		after, _ := sign(t, i, time.Hour)
		if _, err := i.Verify(before); !errors.Is(err, tokens.ErrUnknown) {
			t.Errorf("an old token: %v", err)
		}
		if _, err := m.start().Verify(after); err != nil {
			t.Errorf("a new token: %v", err)
		}
	}
	m := newMachine(t)
	if err := os.WriteFile(m.dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.start().Sign(of("sa"), nil, time.Hour); err == nil {
		t.Error("without a directory there is a key")
	}
	if _, err := m.start().Verify("eyJhbGciOiJFUzI1NiJ9.e30.AAAA"); err == nil || errors.Is(err, tokens.ErrUnknown) {
		t.Errorf("without a key, a token is looked at: %v", err)
	}
}
