package secrets

import "testing"

func TestHideOwnKeepsWordsOfSentences(t *testing.T) {
	for _, tt := range []struct {
		text    string
		secrets []string
		want    string
	}{
		{`dial tcp 127.0.0.1:1: refused`, []string{"p"}, `dial tcp 127.0.0.1:1: refused`},
		{`Post "http://u:p@h/": dial tcp`, []string{"p"}, `Post "http://u:*@h/": dial tcp`},
		{`bad password "p", it is "p"`, []string{"p"}, `bad password "*", it is "*"`},
		{`connection refused: u:connection@h`, []string{"connection"}, `connection refused: u:*@h`},
		{`user Xhunter2X`, []string{"hunter2"}, `user X*X`},
		{`the CorrectHorse`, []string{"CorrectHorse"}, `the *`},
		{`the correcthorsebatterystaple`, []string{"correcthorsebatterystaple"}, `the *`},
		{`h?token=a%2Fb+c and a/b c`, []string{"a/b c"}, `h?token=* and *`},
		{`h?token=a%2Fb`, []string{"a%2Fb"}, `h?token=*`},
		{`is a/b1`, []string{"a%2Fb1"}, `is *`},
		{`x abcd1 abcd1234`, []string{"abcd1", "abcd1234"}, `x * *`},
		{`no "" here`, []string{""}, `no "" here`},
		{``, []string{"p"}, ``},
	} {
		if got := HideOwn(tt.text, "*", tt.secrets...); got != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.secrets, got, tt.want)
		}
	}
}

// All secrets in a text of a server are hidden, and no gap in a word reveals a secret.
func TestHideLeavesNoGapInWord(t *testing.T) {
	for _, tt := range []struct {
		text    string
		secrets []string
		want    string
	}{
		{`bad token Bearer swordfish`, []string{"swordfish"}, `bad token Bearer *`},
		{`refused [ab]`, []string{"ab"}, `refused [*]`},
		{`refused (a)`, []string{"a"}, `refused (*)`},
		{`bad password p`, []string{"p"}, `bad * *`},
		{`bäd pässe`, []string{"p", "b"}, `* *`},
		{`x hunter22y`, []string{"hunter22"}, `x *y`},
		{`"a\"b\u003c", a&#34;b&lt;`, []string{`a"b<`}, `"*", *`},
		{`aaaa`, []string{"aaa"}, `*`},
		{`the secret`, []string{"secret", "e"}, `* *`},
		{`h?token=a%2Fb+c and a/b c`, []string{"a/b c"}, `h?token=* and *`},
		{`ok`, []string{"", "no"}, `ok`},
	} {
		if got := Hide(tt.text, "*", tt.secrets...); got != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.secrets, got, tt.want)
		}
	}
}

// A secret is found in every form that a server may give it in a URL or in JSON.
func TestHideFindsEscapedForms(t *testing.T) {
	const secret = `p@ss w/ord%+<"\`
	for _, text := range []string{
		`a p@ss w/ord%+<"\ b`,
		`a p@ss w/ord%+<\"\\ b`,      // JSON
		`a p@ss w/ord%+\u003c\"\\ b`, // JSON in HTML
		`a p@ss w/ord%+&lt;&#34;\ b`, // HTML
		`a p%40ss%20w/ord%25%2B%3C%22%5C b`,
		`a p%40ss%20w%2ford%25%2b%3c%22%5c b`,
		`a p%40ss+w%2Ford%25%2B%3C%22%5C b`,
		`a p@ss%20w/ord%25+<"\ b`,
	} {
		if got := Hide(text, "[secret]", secret); got != "a [secret] b" {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := Hide("100% of %zz and %4", "[secret]", "of %zz"); got != "100% [secret] and %4" {
		t.Error(got)
	}
}
