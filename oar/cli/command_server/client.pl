# The program that a user starts where a server answers commands: it sends the request and stands for the answer.
# What it sends, and what keeps a request from being carried out twice: docs/design/commands.rst.
#
#     client.pl SOCKET VERSION WRAPPER COMMAND [ARGUMENT...]
#
# It is Perl, without any module, because the start of an interpreter is most of what a command costs: this one takes a
# third of the processor time of Python.

use strict;

my ($socket_path, $version, $wrapper, $command, @arguments) = @ARGV;

my $PROTOCOL = "OAR-COMMANDS 2";
# Seconds in which the server must answer, and in which it must have accepted a request that waits.
my ($PATIENCE, $LONGEST_WAIT) = (1, 60);
# Bytes of a request; the kernel doubles it, and gives less where it has less.
my $LARGEST = 1 << 18;
# Bytes of an answer: at most the words of a program that the user is to run, and two descriptors.
my ($LARGEST_ANSWER, $TWO_DESCRIPTORS) = (1 << 16, 32);
# The limits that a command takes over, as the kernel names them.
my @LIMITS = ("cpu time", "file size", "data size", "address space");
# What the server may know of the environment of the user; it takes less of it.
my $VARIABLES = qr/^(?:LANG|LANGUAGE|LINGUAS|TZ|TERM|COLORTERM|NO_COLOR|DISPLAY|XAUTHORITY|OAR.*|LC_.*)$/s;
# Where programs that run as the user are looked for.
my $PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
my $EXIT_UNKNOWN = 3;
my $UNKNOWN = "# Error: the command service ended while it ran your command, whose result is unknown. Check with oarstat.\n";

# Constants of the kernel: modules would take longer to load than all the rest.
my ($AF_UNIX, $SOCK_SEQPACKET, $SOCK_NONBLOCK, $SOL_SOCKET, $SO_SNDBUF) = (1, 5, 04000, 1, 7);
my ($SCM_RIGHTS, $MSG_CMSG_CLOEXEC) = (1, 0x40000000);
my ($EINTR, $EAGAIN, $ECONNRESET) = (4, 11, 104);
# The numbers of sendmsg and recvmsg, by the e_machine of ELF: x86-64, AArch64, RISC-V, PowerPC, S/390.
my %SYSTEM_CALLS = (62 => [46, 47], 183 => [211, 212], 243 => [211, 212], 21 => [341, 342], 22 => [370, 372]);
# struct cmsghdr is a length, a level and a type; descriptors follow.
my ($CMSGHDR, $CMSGHDR_SIZE) = ("Q l l", 16);

my $connection;
my $has_only_asked = 1;    # nothing was sent after the request

delete $ENV{PERL_BADLANG};    # set by the wrapper: Perl has nothing to say about the locale
my ($SENDMSG, $RECVMSG) = find_system_calls();
ask();

sub ask {
    my $request = format_request();
    connect_server();
    for my $name ("INT", "HUP") {
        $SIG{$name} = \&pass_on if $name eq "HUP" or ($SIG{$name} // "") ne "IGNORE";
    }
    send_request($request);
    while (1) {
        my ($word, $rest, @descriptors) = receive_answer();
        exit $rest if $word eq "end";
        go_other_way() if $word eq "refused";
        end_unknown() if $word ne "run";
        send_message("done\0" . run_program([split /\0/, $rest, -1], @descriptors)) or end_unknown();
    }
}

# Return the numbers of sendmsg and recvmsg for the program that runs this.
sub find_system_calls {
    open my $program, "<", "/proc/self/exe" or go_other_way();
    read $program, my $header, 20;
    my ($class, $machine) = unpack "x4 C x13 S", $header;
    go_other_way() unless $class == 2 and $SYSTEM_CALLS{$machine};    # 2: 64 bits
    return @{ $SYSTEM_CALLS{$machine} };
}

# Return the request; a caller whom the server would not know as sudo does goes the other way.
sub format_request {
    my @real = split / /, $(;
    my @effective = split / /, $);
    go_other_way() if $< != $> or $real[0] != $effective[0] or exists $ENV{OARCONFFILE};
    my $directory = readlink "/proc/self/cwd";
    go_other_way() if !defined $directory or is_elsewhere($directory);
    my @variables = map { "$_=$ENV{$_}" } grep { /$VARIABLES/ } keys %ENV;
    my $numbers = join " ", umask, scalar @arguments, read_limits();
    return join "\0", $PROTOCOL, $version, $command, $directory, $numbers, @arguments, @variables;
}

# Return whether this is not the path of the working directory any more.
sub is_elsewhere {
    my @here = stat ".";
    my @there = stat $_[0];
    return !@here || !@there || $here[0] != $there[0] || $here[1] != $there[1];
}

sub read_limits {
    open my $file, "<", "/proc/self/limits" or go_other_way();
    my $text = join "", <$file>;
    return map { $text =~ /^Max \Q$_\E +(\S+)/m or go_other_way(); $1 eq "unlimited" ? -1 : $1 } @LIMITS;
}

# Connect, and return when a process is ready.  No descriptor is sent before: the kernel would keep the streams of the
# user open until somebody takes the connection.
sub connect_server {
    check_streams();
    socket $connection, $AF_UNIX, $SOCK_SEQPACKET | $SOCK_NONBLOCK, 0 or go_other_way();
    connect $connection, pack "S a*", $AF_UNIX, "$socket_path\0" or go_other_way();
    defined send $connection, "$PROTOCOL\0$version", 0 or go_other_way();
    my $answer = receive_word($PATIENCE);
    # The server is there: by sudo a command would only take more of a busy machine.
    $answer = receive_word($LONGEST_WAIT) if $answer eq "wait";
    go_other_way() if $answer ne "ready";
}

# Let a caller with a closed stream go the other way: Perl has opened this file there, or the connection would be there.
sub check_streams {
    my @program = stat $0;
    for my $stream (\*STDIN, \*STDOUT, \*STDERR) {
        my @file = stat $stream;
        next if @file and "@file[0, 1]" ne "@program[0, 1]";
        close $stream;
        go_other_way();
    }
}

# Return what the server has sent within some seconds, "" if it is gone or silent.
sub receive_word {
    my $until = time + $_[0];
    while ((my $left = $until - time) >= 0) {
        next unless await($left);
        return "" unless defined recv $connection, my $word, $LARGEST_ANSWER, 0;
        return $word;
    }
    return "";
}

# Wait until there is something to receive; return whether there is: a signal ends the waiting too.
sub await {
    my $readable = "";
    vec($readable, fileno $connection, 1) = 1;
    return select($readable, undef, undef, $_[0]) > 0;
}

# Send the request with the standard streams.  Until it is sent nothing has begun.
sub send_request {
    my ($data) = @_;
    setsockopt $connection, $SOL_SOCKET, $SO_SNDBUF, pack "i", $LARGEST;
    my $streams = pack "$CMSGHDR l3 x4", $CMSGHDR_SIZE + 12, $SOL_SOCKET, $SCM_RIGHTS, 0, 1, 2;
    my $buffers = pack "P Q", $data, length $data;
    my $message = pack "Q Q P Q P Q Q", 0, 0, $buffers, 1, $streams, length $streams, 0;
    go_other_way() if syscall($SENDMSG, fileno $connection, $message, 0) != length $data;
}

# Return word, rest and descriptors of the next answer.
sub receive_answer {
    my ($data, $control) = ("", "");
    vec($data, $LARGEST_ANSWER - 1, 8) = 0;
    vec($control, $TWO_DESCRIPTORS - 1, 8) = 0;
    while (1) {
        await(undef);
        my $buffers = pack "P Q", $data, $LARGEST_ANSWER;
        my $message = pack "Q Q P Q P Q Q", 0, 0, $buffers, 1, $control, $TWO_DESCRIPTORS, 0;
        my $length = syscall $RECVMSG, fileno $connection, $message, $MSG_CMSG_CLOEXEC;
        next if $length < 0 and ($! == $EINTR or $! == $EAGAIN);
        # The kernel says so where something was not read: if it can only be the request, nothing has begun.
        go_other_way() if $length < 0 and $! == $ECONNRESET and $has_only_asked;
        end_unknown() if $length <= 0;
        my ($word, $rest) = split /\0/, substr($data, 0, $length), 2;
        my $control_length = unpack "x40 Q", $message;
        my $size = $control_length ? unpack("Q", $control) - $CMSGHDR_SIZE : 0;
        return $word, $rest, unpack "l*", substr $control, $CMSGHDR_SIZE, $size;
    }
}

# Hand a signal over; if nobody is there any more, the end of the connection says so.
sub pass_on {
    my %numbers = (INT => 2, HUP => 1);
    send_message("signal\0$numbers{$_[0]}");
}

sub send_message {
    $has_only_asked = 0;
    return defined send $connection, $_[0], 0;
}

# Run a program as the user who this is, with two descriptors as input and output; return its exit code, or that of a
# signal below 0.
sub run_program {
    my ($words, $input, $output) = @_;
    my $pid = fork // return 127;
    become_program($words, $input, $output) unless $pid;
    for my $descriptor ($input, $output) {
        open(my $file, "<&=", $descriptor) or next;
        close $file;
    }
    1 while waitpid($pid, 0) != $pid;
    return $? & 127 ? -($? & 127) : $? >> 8;
}

sub become_program {
    my ($words, $input, $output) = @_;
    open STDIN, "<&", $input and open STDOUT, ">&", $output and open STDERR, ">", "/dev/null" or exit 127;
    %ENV = (PATH => $PATH, HOME => $ENV{HOME} // "/");
    exec { $words->[0] } @$words;
    exit 127;
}

# Become the wrapper of the command, which then uses sudo: the server has done nothing.
sub go_other_way {
    $ENV{OAR_BY_SUDO} = "yes";
    exec { $wrapper } $wrapper, @arguments;
    exit 127;
}

# End where the server was told to begin and is gone without an answer.
sub end_unknown {
    print STDERR $UNKNOWN;
    exit $EXIT_UNKNOWN;
}
