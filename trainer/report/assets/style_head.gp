# What all figures here share. Change it, or a figure's own script, and draw again: gnuplot loss-updates.gp
# The next report writes these files anew: copy what you want to keep.
set encoding utf8
font_name = 'Helvetica'
kinds = strstrt(GPVAL_TERMINALS, 'pdfcairo') ? 'svg pdf' : 'svg'
# A drawing of w by h pixels; on paper it is w / 110 inches wide. Kind 'page' is for the page alone.
figure(kind, name, w, h) = kind ne 'pdf' \
    ? sprintf("set terminal svg enhanced dynamic rounded size %d,%d font '%s,13'; set output '%s%s.svg'", \
              w, h, font_name, name, kind eq 'page' ? '.page' : '') \
    : sprintf("set terminal pdfcairo enhanced color rounded size %.3fin,%.3fin font '%s,13' fontscale 0.56 linewidth 1.2 dashlength 2; set output '%s.pdf'", \
              w / 110.0, h / 110.0, font_name, name)
