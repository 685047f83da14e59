package secrets

import "testing"

func TestHide(t *testing.T) {
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
		if got := Hide(tt.text, "*", tt.secrets...); got != tt.want {
			t.Errorf("%q without %q: %q, want %q", tt.text, tt.secrets, got, tt.want)
		}
	}
}
